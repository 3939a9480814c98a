"""All graphs as columns, and batches of them."""

import pickle
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.data.catalog import CATALOG
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.gather import DeviceGather, make_gather
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns, Pairs
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.errors import UserError
from tests.helpers.processes import run_apart
from tests.helpers.synthetic import synthetic_graphs

EVERYTHING = Precompute(
    num_eigenvectors=4, walk_length=3, expander_degree=2, has_centrality=True, has_clusters=True
)


def draw_graph(nodes: int, edges: int, seed: int = 0) -> Data:
    """A graph with a column of each kind; edges in no order."""
    generator = torch.Generator().manual_seed(seed)
    edges = edges if nodes else 0
    return Data(
        x=torch.randint(-5, 300, (nodes, 3), generator=generator),
        edge_index=torch.randint(max(nodes, 1), (2, edges), generator=generator),
        edge_attr=torch.rand(edges, 2, generator=generator),
        y=torch.rand(1, 4, generator=generator),
        flag=torch.rand(nodes, generator=generator) < 0.5,
        level=torch.full((nodes, 2), float(seed)),
        far=torch.randint(2**40, (nodes,), generator=generator),
        half=torch.rand(nodes, 3, generator=generator).half(),
        edge_label_index=torch.randint(max(nodes, 1), (2, min(nodes, 3)), generator=generator),
        edge_label=torch.rand(min(nodes, 3), generator=generator),
    )


SIZES = [(5, 9), (1, 0), (0, 0), (3, 0), (1, 2), (40, 100), (0, 0), (7, 1)]
GRAPHS = [draw_graph(*size, seed) for seed, size in enumerate(SIZES)]


def assert_equal(ours: Data, theirs: Data) -> None:
    assert set(ours.keys()) == set(theirs.keys())
    for name in theirs.keys():  # noqa: SIM118
        assert same(ours[name], theirs[name]), name


def same(ours: Tensor, theirs: Tensor) -> bool:
    is_alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
    return is_alike and torch.equal(ours.nan_to_num(7.5), theirs.nan_to_num(7.5))


def sorted_by_target(batch: Batch) -> Batch:
    batch = batch.clone()
    order = batch.edge_index[1].argsort(stable=True)
    batch.edge_index, batch.edge_attr = batch.edge_index[:, order], batch.edge_attr[order]
    return batch


def expected_batch(graphs: Sequence[Data], ids: Sequence[int]) -> Batch:
    """PyG's own, its edges sorted, with the numbers of the graphs."""
    batch = sorted_by_target(Batch.from_data_list([graphs[number] for number in ids]))
    batch.graph_key = torch.tensor(ids)
    return batch


@pytest.fixture(params=["compiled", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are made by the kernel, or as on a GPU and where Numba is missing."""
    if request.param == "torch":
        monkeypatch.setattr("graphmamba.data.store.make_gather", DeviceGather)


@pytest.mark.usefixtures("way")
def test_graphs_come_back_as_they_went_in() -> None:
    store = GraphStore.from_pyg(GRAPHS)
    assert len(store) == len(GRAPHS)
    for number, graph in enumerate(GRAPHS):
        assert_equal(store[number], graph)
    assert_equal(store[-1], GRAPHS[-1])
    with pytest.raises(IndexError):
        store[len(GRAPHS)]


@pytest.mark.parametrize("gather", [make_gather, DeviceGather])
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=8),
    data=st.data(),
)
@example(sizes=SIZES, data=[2, 6])
@example(sizes=SIZES, data=[5, 1, 7, 7, 0])
def test_any_graphs_batch_like_those_of_pyg(
    gather: Callable[..., object], sizes: list[tuple[int, int]], data: st.DataObject | list[int]
) -> None:
    graphs = [draw_graph(*size, seed) for seed, size in enumerate(sizes)]
    ids = data
    if not isinstance(data, list):
        ids = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=10))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("graphmamba.data.store.make_gather", gather)
        batch = GraphStore.from_pyg(graphs).batch(torch.tensor(ids))
    assert isinstance(batch, Batch)
    assert batch.num_graphs == len(ids)
    assert_equal(batch, expected_batch(graphs, ids))


@pytest.mark.usefixtures("way")
def test_a_batch_can_be_taken_apart() -> None:
    ids = [5, 2, 0]
    batch = GraphStore.from_pyg(GRAPHS).batch(torch.tensor(ids), by_source=True)
    for ours, graph in zip(batch.to_data_list(), ids, strict=True):
        assert same(ours.x, GRAPHS[graph].x)
        assert same(ours.edge_label_index, GRAPHS[graph].edge_label_index)
        assert ours.graph_key.tolist() == [graph]
        assert ours.edge_index.shape == GRAPHS[graph].edge_index.shape
        assert sorted(ours.source_order.tolist()) == list(range(ours.num_edges))


@pytest.mark.usefixtures("way")
def test_the_index_by_source_sorts_the_edges_by_source() -> None:
    batch = GraphStore.from_pyg(GRAPHS).batch(torch.tensor([7, 5, 2, 0]), by_source=True)
    sources = batch.edge_index[0][batch.source_order]
    assert torch.equal(sources, batch.edge_index[0].sort().values)


@pytest.mark.usefixtures("way")
def test_no_graphs_are_a_batch_too() -> None:
    batch = GraphStore.from_pyg(GRAPHS).batch(torch.empty(0, dtype=torch.int64))
    assert batch.num_graphs == 0
    assert batch.x.shape == (0, 3)
    assert batch.ptr.tolist() == [0]


@pytest.mark.usefixtures("way")
def test_graphs_without_node_columns_keep_their_number_of_nodes() -> None:
    edge_index = torch.tensor([[1, 0], [0, 1]])
    store = GraphStore.from_pyg([Data(edge_index=edge_index, num_nodes=nodes) for nodes in (4, 2)])
    assert store[0].num_nodes == 4
    batch = store.batch(torch.tensor([1, 0]))
    assert batch.num_nodes == 6
    assert batch.batch.tolist() == [0, 0, 1, 1, 1, 1]


def test_edge_features_are_those_of_edges_where_there_are_as_many_as_nodes() -> None:
    ring = torch.tensor([[2, 0, 1], [0, 1, 2]])
    graph = Data(x=torch.rand(3, 2), edge_index=ring, edge_attr=torch.rand(3, 1), y=torch.rand(3))
    graph.edge_label_index, graph.edge_label = ring.flip(0), torch.tensor([1, 0, 1])
    columns = columns_of([graph])
    assert set(columns.nodes) == {"x", "y"}
    assert set(columns.edges) == {"edge_attr"}
    assert set(columns.pairs["edge_label_index"].columns) == {"edge_label"}
    found = GraphStore(columns)[0]
    wanted = {
        tuple(pair): value for pair, value in zip(ring.T.tolist(), graph.edge_attr, strict=True)
    }
    for pair, value in zip(found.edge_index.T.tolist(), found.edge_attr, strict=True):
        assert torch.equal(value, wanted[tuple(pair)])


def test_the_columns_come_back_as_they_went_in() -> None:
    given_columns = GraphStore.from_pyg(GRAPHS, torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])).columns()
    again = GraphStore(given_columns).columns()
    assert torch.equal(given_columns.edge_index, torch.cat([g.edge_index for g in GRAPHS], dim=1))
    for field in fields(GraphColumns):
        ours, theirs = getattr(again, field.name), getattr(given_columns, field.name)
        if isinstance(theirs, Tensor):
            assert torch.equal(ours, theirs)
        elif field.name in {"nodes", "edges", "graphs"}:
            assert all(same(ours[name], theirs[name]) for name in theirs)
    pairs = again.pairs["edge_label_index"]
    assert torch.equal(pairs.index, given_columns.pairs["edge_label_index"].index)
    assert same(pairs.columns["edge_label"], torch.cat([graph.edge_label for graph in GRAPHS]))


def test_columns_can_be_added_later() -> None:
    plain = synthetic_graphs(CATALOG["peptides-func"], 4)
    full = [add_columns(graph, EVERYTHING) for graph in plain]
    whole = GraphStore.from_pyg(full).columns()
    added = {name: values for name, values in whole.nodes.items() if name != "x"}
    store = GraphStore.from_pyg(plain).with_columns(nodes=added, pairs=whole.pairs)
    assert_equal(store.batch(torch.tensor([2, 0])), expected_batch(full, [2, 0]))
    assert "laplacian_vectors" not in GraphStore.from_pyg(plain).tables["nodes"].columns
    with pytest.raises(UserError, match="two kinds of rows"):
        store.with_columns(graphs={"x": torch.zeros(4)})
    with pytest.raises(UserError, match=r"centrality must have .* rows"):
        store.with_columns(nodes={"centrality": torch.zeros(3)})


@pytest.mark.usefixtures("way")
def test_a_copy_gives_its_own_rows() -> None:
    store, ids = GraphStore.from_pyg(GRAPHS), torch.tensor([5, 2, 0])
    before = store.batch(ids).x
    copied = deepcopy(store)
    copied.tables["nodes"].columns["x"].values.add_(1)
    assert torch.equal(copied.batch(ids).x, before + 1)
    assert torch.equal(store.batch(ids).x, before)
    assert_equal(copy(store).batch(ids), store.batch(ids))


def test_a_used_store_goes_to_another_process(tmp_path: Path) -> None:
    store = GraphStore.from_pyg(GRAPHS)
    store.batch(torch.tensor([5, 2, 0]))
    (tmp_path / "store").write_bytes(pickle.dumps(store))
    run_apart(
        "import pickle, torch\n"
        "from pathlib import Path\n"
        "from tests.data.test_store import GRAPHS, assert_equal, expected_batch\n"
        f"store = pickle.loads(Path({str(tmp_path / 'store')!r}).read_bytes())\n"
        "assert_equal(store.batch(torch.tensor([5, 2, 0])), expected_batch(GRAPHS, [5, 2, 0]))\n"
    )


def test_little_memory_is_used() -> None:
    graphs = [Data(x=torch.randint(9, (50, 9)), level=torch.ones(50, 9)) for _ in range(4)]
    assert GraphStore.from_pyg(graphs).nbytes < 4 * 50 * 9 + 4 * 9 * 4 + 100


def test_parts_are_found_by_name() -> None:
    parts = {"test": [0, 5], "train": [1, 2, 3], "validation": [4, 6, 7]}
    store = GraphStore.from_pyg(GRAPHS, parts)
    for name, members in parts.items():
        assert store.split_ids(name).tolist() == members
    with pytest.raises(UserError, match="name must be one of 'train', 'validation', 'test'"):
        store.split_ids("val")
    with pytest.raises(UserError, match="split must be given"):
        GraphStore.from_pyg(GRAPHS).split_ids("train")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"train": [0, 1]}, "each of the graphs 0 to 7 once"),
        ({"train": range(8), "test": [3]}, "each of the graphs 0 to 7 once"),
        ({"valid": [1]}, "split must be one of"),
        (torch.tensor([0, 1]), "0, 1 or 2 for each of 8 graphs"),
        (torch.full((8,), 3), "split must hold 0, 1 or 2"),
    ],
)
def test_bad_parts_are_rejected(split: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        GraphStore.from_pyg(GRAPHS, split)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "someone"}, r"graphs\[1\].name must be a tensor or left out"),
        ({"x": torch.zeros(5, 3)}, r"graphs\[1\].x must be like that of graph 0"),
        ({"y": torch.zeros(4, 4)}, "y must have a row for each of the nodes, edges, graphs"),
        ({"edge_index": torch.tensor([[0], [5]])}, "nodes 0 to 4 in graph 1, got .0, 5."),
        ({"edge_index": torch.zeros(3, 2)}, r"graphs\[1\].edge_index must hold integers"),
        ({"batch": torch.zeros(5)}, "name must be an identifier and none of"),
    ],
    ids=["text", "type", "rows", "missing node", "shape", "taken name"],
)
def test_bad_graphs_are_rejected(change: dict[str, object], message: str) -> None:
    # Without its attributes an edge can be changed alone.
    good, bad = (draw_graph(5, 9, seed) for seed in (0, 1))
    for graph in (good, bad):
        del graph.edge_attr
        for name, value in change.items():
            if name not in good:
                graph[name] = value
    bad.update(change)
    if "name" in change:
        good["name"] = torch.zeros(1)
    with pytest.raises(UserError, match=message):
        GraphStore.from_pyg([good, bad])


@pytest.mark.parametrize("wrong", [8, -1])
def test_graphs_that_are_not_there_are_rejected(wrong: int) -> None:
    with pytest.raises(UserError, match=f"ids must hold graphs 0 to 7, got {wrong}"):
        GraphStore.from_pyg(GRAPHS).batch(torch.tensor([0, wrong]))


def test_rows_that_do_not_add_up_are_rejected() -> None:
    ptr = torch.tensor([0, 2])
    edge_index = torch.tensor([[0, 1], [1, 0]])
    pairs = {"further": Pairs(ptr, edge_index)}
    with pytest.raises(UserError, match="x must have 2 rows"):
        GraphStore(GraphColumns(ptr, ptr, edge_index, {"x": torch.zeros(3, 1)}))
    with pytest.raises(UserError, match="edge_ptr must start at 0 and never fall"):
        GraphStore(GraphColumns(ptr, torch.tensor([1, 2]), edge_index))
    with pytest.raises(UserError, match="must have `index` in it, got 'further'"):
        GraphStore(GraphColumns(ptr, ptr, edge_index, pairs=pairs))


@pytest.mark.gpu
def test_batches_are_the_same_on_a_gpu() -> None:
    store, ids = GraphStore.from_pyg(GRAPHS), torch.tensor([5, 2, 0, 7])
    assert_equal(store.to("cuda").batch(ids).to("cpu"), store.batch(ids))
    assert_equal(store.to("cuda")[5].to("cpu"), GRAPHS[5])

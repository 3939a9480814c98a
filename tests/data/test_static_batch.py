"""Batches of fixed shapes, filled up by a padding graph."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_geometric.data import Data

from graphmamba.data.batch import topology_of
from graphmamba.data.catalog import CATALOG
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import lay_out_edges
from tests.helpers.synthetic import synthetic_graphs

EVERYTHING = Precompute(
    num_eigenvectors=3, walk_length=2, expander_degree=2, has_centrality=True, has_clusters=True
)
SETS = ("peptides-func", "pascalvoc-sp", "pattern", "malnet-tiny", "pcqm-contact")
CASES = {
    "full": ([4, 0, 2], StaticSize(3, 64, 256, (256,))),
    "empty places": ([1, 3, -1], StaticSize(3, 40, 200, (150,))),
    "nothing but padding graphs": ([-1, -1], StaticSize(2, 5, 7, (9,))),
    "fewer padding edges than padding nodes": ([5, 1], StaticSize(2, 128, 130, (128,))),
}


def store_of(name: str) -> GraphStore:
    graphs = synthetic_graphs(CATALOG[name], 6, nodes=(1, 12))
    for graph in graphs:
        graph.graph_attr = torch.rand(1, 217)
    return GraphStore.from_pyg([add_columns(graph, EVERYTHING) for graph in graphs])


def size_for(store: GraphStore, size: StaticSize) -> StaticSize:
    """The same with room for as many sets of pairs as the store has."""
    pairs = size.pairs * (len(store.tables) - 3)
    return StaticSize(size.graphs, size.nodes, size.edges, pairs)


def same(ours: Tensor, theirs: Tensor) -> bool:
    is_alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
    return is_alike and torch.equal(ours.nan_to_num(7.5), theirs.nan_to_num(7.5))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SETS)
def test_real_rows_are_those_of_a_plain_batch(name: str, case: str) -> None:
    store = store_of(name)
    ids, size = torch.tensor(CASES[case][0]), size_for(store, CASES[case][1])
    ours = StaticGather(store).batch(ids, size, by_source=True)
    plain = store.batch(ids[ids >= 0], by_source=True)
    assert set(ours.keys()) == set(plain.keys()) | {
        "num_real_graphs", "num_real_nodes", "num_real_edges", "source_ptr", "target_ptr"
    }  # fmt: skip
    for key in plain.keys():  # noqa: SIM118
        axis = 1 if "index" in key else 0
        real = ours[key].narrow(axis, 0, plain[key].shape[axis])
        assert same(real, plain[key]), key
    assert int(ours.num_real_nodes) == plain.num_nodes
    assert int(ours.num_real_edges) == plain.num_edges
    assert int(ours.num_real_graphs) == plain.num_graphs
    assert ours.num_graphs == size.graphs + 1


@pytest.mark.parametrize("case", CASES)
def test_paddings_keep_to_themselves_and_to_the_rules(case: str) -> None:
    store = store_of("pcqm-contact")
    ids, size = torch.tensor(CASES[case][0]), size_for(store, CASES[case][1])
    batch = StaticGather(store).batch(ids, size, by_source=True)
    nodes, edges = int(batch.num_real_nodes), int(batch.num_real_edges)
    assert batch.num_nodes == size.nodes
    assert batch.edge_index.shape[1] == size.edges
    assert (batch.batch[nodes:] == size.graphs).all()
    assert batch.ptr.tolist()[-2:] == [nodes, size.nodes]
    source, target = batch.edge_index
    assert (target.diff() >= 0).all()
    assert (source[batch.source_order].diff() >= 0).all()
    assert torch.equal(batch.source_order.sort().values, torch.arange(size.edges))
    for index in (batch.edge_index, batch.expander_index, batch.edge_label_index):
        assert torch.equal(*batch.batch[index])
        assert index.max() < size.nodes
    degree = torch.bincount(target[edges:] - nodes, minlength=size.nodes - nodes)
    assert degree.max() - degree.min() <= 1


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SETS)
def test_the_edges_of_each_node_are_found_without_a_search(name: str, case: str) -> None:
    store = store_of(name)
    ids, size = torch.tensor(CASES[case][0]), size_for(store, CASES[case][1])
    batch = StaticGather(store).batch(ids, size, by_source=True)
    searched = lay_out_edges(batch.edge_index, size.nodes, batch.source_order)
    known = topology_of(batch).lay_out()
    for pointer in ("source_ptr", "target_ptr"):
        assert same(getattr(known, pointer), getattr(searched, pointer))


@pytest.mark.parametrize("name", SETS)
def test_paddings_and_empty_places_have_no_label(name: str) -> None:
    store = store_of(name)
    ids, size = torch.tensor([1, 3, -1]), size_for(store, CASES["empty places"][1])
    batch = StaticGather(store).batch(ids, size)
    plain = store.batch(ids[:2])
    label, rows = ("y", plain.y) if "y" in plain else ("edge_label", plain.edge_label)
    paddings = batch[label][rows.shape[0] :]
    assert len(paddings)
    assert (paddings.isnan() if paddings.is_floating_point() else paddings == -1).all()


def test_a_set_without_any_edge_is_padded_all_the_same() -> None:
    graph = Data(x=torch.ones(2, 3), edge_index=torch.empty(2, 0, dtype=torch.int64))
    store = GraphStore.from_pyg([graph])
    batch = StaticGather(store).batch(torch.tensor([0]), StaticSize(1, 4, 6), by_source=True)
    assert batch.edge_index.tolist() == [[2, 2, 2, 3, 3, 3]] * 2
    assert batch.target_ptr.tolist() == [0, 0, 0, 3, 6]


def test_no_value_is_read_back_and_no_shape_depends_on_one() -> None:
    store = store_of("peptides-func")
    size = size_for(store, CASES["full"][1])
    with FakeTensorMode(allow_non_fake_inputs=True):
        gather = StaticGather(store)
        gather._check = lambda *_: None  # type: ignore[method-assign]
        batch = gather.batch(torch.tensor([4, 0, 2]), size, by_source=True)
    assert batch.x.shape[0] == size.nodes


@pytest.mark.parametrize(
    ("ids", "size", "message"),
    [
        ([0, 1], StaticSize(3, 64, 256, (256,)), r"ids must have shape \[3\]"),
        ([0, 1], StaticSize(2, 3, 256, (256,)), "size.nodes must be at least"),
        ([4, 0], StaticSize(2, 64, 3, (256,)), "size.edges must be at least"),
        ([4, 0], StaticSize(2, 64, 256, (256,), ((2, 2),)), "size.blocks must have room"),
    ],
)
def test_what_does_not_fit_is_rejected(ids: list[int], size: StaticSize, message: str) -> None:
    gather = StaticGather(store_of("peptides-func"))
    with pytest.raises(UserError, match=message):
        gather.batch(torch.tensor(ids), size)


def test_labels_that_cannot_be_missing_are_rejected() -> None:
    graph = Data(x=torch.ones(3, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    graph.y = torch.tensor([[True, True, False]])
    with pytest.raises(UserError, match=r"graphs.y must have a signed type.*torch.bool"):
        StaticGather(GraphStore.from_pyg([graph]))

"""Computed columns: of one graph, of a batch and of a whole set the same, and kept on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from graphmamba.data.catalog import CATALOG
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms import precompute
from graphmamba.data.transforms.expander import expander_edges
from graphmamba.data.transforms.precompute import (
    Precompute,
    add_columns,
    add_precomputed,
    with_precomputed,
)
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits
from tests.data.transforms.test_laplacian import GRAPH_SET, GRAPHS, rows_of
from tests.helpers.graphs import graph_columns
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off

CYCLE = to_undirected(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
STORE = GraphStore.from_pyg(synthetic_graphs(CATALOG["peptides-func"], 5, nodes=(8, 14)))
KEPT_AS = {"set": "five molecules"}


def test_columns_are_batched_like_nodes_and_edges() -> None:
    asked = Precompute(num_eigenvectors=4, walk_length=3, expander_degree=2)
    graph = Data(x=torch.ones(12, 1), edge_index=CYCLE)
    graphs = Batch.from_data_list([add_columns(graph, asked) for _ in range(2)])
    assert graphs.laplacian_vectors.shape == graphs.laplacian_values.shape == (24, 4)
    assert graphs.random_walk.shape == (24, 3)
    assert graphs.expander_index.shape == (2, 2 * 2 * 2 * 12)
    assert graphs.expander_index.max() == 23
    assert "random_walk" not in graph


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"walk_length": -1}, "walk_length must be at least 0, got -1"),
        ({"degree_profile": "foo"}, "degree_profile must be one of 'none', 'biased', 'unbiased'"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_are_rejected(asked: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        Precompute(**asked)


EVERY_COLUMN = Precompute(3, 4, 2, True, True, "unbiased")


def drawn_graphs() -> list[Data]:
    """One of them has one node, one has none, and two are alike."""
    generator = torch.Generator().manual_seed(0)
    sizes = [12, 1, 0, 70, 12]
    graphs = [
        Data(
            x=torch.ones(nodes, 1),
            edge_index=torch.randint(max(nodes, 1), (2, 2 * nodes), generator=generator),
            y=torch.tensor([float(nodes)]),
        )
        for nodes in sizes
    ]
    graphs[-1].edge_index = graphs[0].edge_index
    return graphs


def assert_same(ours: Data, theirs: Data) -> None:
    assert set(ours.keys()) == set(theirs.keys())
    for name in theirs.keys():  # noqa: SIM118 - a graph is no dictionary
        assert torch.equal(ours[name].nan_to_num(9), theirs[name].nan_to_num(9)), name


def test_graphs_of_a_batch_get_their_columns_one_by_one() -> None:
    graphs, asked = drawn_graphs(), replace(EVERY_COLUMN, expander_degree=0)
    alone = [add_columns(graph, asked) for graph in graphs]
    batch = Batch.from_data_list(graphs)
    together = add_columns(batch, asked)
    assert_same(together, Batch.from_data_list(alone))
    for ours, theirs in zip(together.to_data_list(), alone, strict=True):
        assert_same(ours, theirs)
    assert_same(batch, Batch.from_data_list(graphs))
    for ours, theirs in zip(batch.to_data_list(), graphs, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"edge_index": torch.tensor([[0, -1], [1, 0]])}, "edge_index must hold .*, got -1"),
        ({"edge_index": torch.tensor([[0, 1], [1, 4]])}, "must hold numbers of the 4 n.* got 4"),
        ({"edge_index": torch.ones(2, 2)}, "edge_index must hold integers.*, got torch.float32"),
        ({"batch": torch.tensor([0, 0, 1, 1])}, "edge_index must join nodes of the same graph"),
        ({"batch": torch.tensor([0, 1, 0, 1])}, "batch must be sorted, got 0 after 1 at node 2"),
    ],
    ids=["negative node", "unknown node", "floats", "edge between graphs", "unsorted"],
)
def test_graphs_that_cannot_be_are_rejected(columns: dict[str, Tensor], message: str) -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = Data(**{"x": torch.ones(4, 1), "edge_index": edges, **columns})
    with typecheck_off(), pytest.raises(UserError, match=message):
        add_columns(graph, Precompute(walk_length=2))


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"random_walk.WALK_COLUMNS": 7, "random_walk.WALK_ENTRIES": 600},
        {"centrality.DENSE_UP_TO": 10},
    ],
    ids=["at once", "by columns", "sparse"],
)
def test_columns_of_a_set_are_those_of_each_graph_alone(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Precompute(0, 6, 0, True, True, "unbiased")
    alone = [add_precomputed(graph_columns(graph), asked).nodes for graph in GRAPHS.values()]
    for name, value in limits.items():
        monkeypatch.setattr(f"graphmamba.data.transforms.{name}", value)
    together = add_precomputed(GRAPH_SET, asked).nodes
    for place, truth in enumerate(alone):
        for name, rows in truth.items():
            assert torch.allclose(rows_of(together[name], place), rows, atol=1e-5), name


def test_expanders_are_those_of_each_graph_and_of_its_number() -> None:
    expander = add_precomputed(GRAPH_SET, Precompute(expander_degree=3, seed=5)).pairs[
        "expander_index"
    ]
    for place, (_, nodes) in enumerate(GRAPHS.values()):
        own_seed = int(draw_bits(torch.tensor(5), torch.tensor(place)))
        truth = expander_edges(nodes, 3, torch.Generator().manual_seed(own_seed))
        assert torch.equal(expander.index[:, expander.ptr[place] : expander.ptr[place + 1]], truth)


def test_a_set_without_graphs_has_columns_without_rows() -> None:
    done = add_precomputed(graph_columns(), EVERY_COLUMN)
    assert {len(rows) for rows in done.nodes.values()} == {0}
    assert done.pairs["expander_index"].index.shape == (2, 0)


def test_recipes_name_what_is_asked_for_and_nothing_else() -> None:
    assert Precompute().recipe() == {}
    assert set(Precompute(num_eigenvectors=4).recipe()) == {"laplacian"}
    assert "seed" not in json.dumps(Precompute(walk_length=4, seed=3).recipe())
    recipe = EVERY_COLUMN.recipe()
    assert json.loads(json.dumps(recipe)) == recipe
    assert len(recipe) == 6
    variants = [
        Precompute(num_eigenvectors=5), Precompute(num_eigenvectors=4), Precompute(walk_length=4),
        Precompute(expander_degree=4), Precompute(expander_degree=4, seed=1),
        Precompute(degree_profile="biased"), Precompute(degree_profile="unbiased"),
    ]  # fmt: skip
    assert len({json.dumps(variant.recipe()) for variant in variants}) == len(variants)


def test_the_store_has_the_columns_and_keeps_its_own(tmp_path: Path) -> None:
    asked = Precompute(3, 2, 2, True, True)
    done = with_precomputed(STORE, asked, tmp_path, KEPT_AS).columns()
    truth = add_precomputed(STORE.columns(), asked)
    assert set(done.nodes) == set(truth.nodes)
    for name, rows in truth.nodes.items():
        assert torch.equal(done.nodes[name].nan_to_num(9.0), rows.nan_to_num(9.0))
    pairs = truth.pairs["expander_index"]
    assert torch.equal(done.pairs["expander_index"].index, pairs.index)
    assert torch.equal(done.pairs["expander_index"].ptr, pairs.ptr)
    assert torch.equal(done.edge_index, STORE.columns().edge_index)
    assert set(STORE.columns().nodes) == {"x"}


def test_nothing_is_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    compute = precompute.precomputed

    def count(columns: object, part: Precompute) -> object:
        computed.extend(part.recipe())
        return compute(columns, part)

    monkeypatch.setattr(precompute, "precomputed", count)
    with_precomputed(STORE, Precompute(num_eigenvectors=3, walk_length=2), tmp_path, KEPT_AS)
    with_precomputed(STORE, Precompute(num_eigenvectors=3, has_clusters=True), tmp_path, KEPT_AS)
    assert computed == ["laplacian", "random_walk", "cluster"]
    with_precomputed(STORE, Precompute(num_eigenvectors=4), tmp_path, KEPT_AS)
    with_precomputed(STORE, Precompute(num_eigenvectors=3), tmp_path, {"set": "five others"})
    assert computed[3:] == ["laplacian", "laplacian"]

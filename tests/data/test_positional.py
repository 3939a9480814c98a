"""Columns computed once per graph."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from graphmamba.data.positional import (
    Precompute,
    add_columns,
    laplacian_spectrum,
    local_degree_profile,
    return_probabilities,
)
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from tests.helpers.typecheck import typecheck_off

CYCLE = to_undirected(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
PATH = to_undirected(torch.tensor([[0, 1], [1, 2]]))
NO_EDGES = torch.empty(2, 0, dtype=torch.long)


def test_spectrum_of_a_cycle() -> None:
    vectors, values = laplacian_spectrum(CYCLE, nodes=4, frequencies=3)
    assert torch.allclose(values, torch.tensor([0.0, 2.0, 2.0]).expand(4, 3), atol=1e-6)
    assert torch.allclose(vectors.T @ vectors, torch.eye(3), atol=1e-6)
    assert torch.allclose(vectors[:, 0].abs(), torch.full((4,), 0.5))


def test_spectrum_pads_small_graphs_with_nan() -> None:
    vectors, values = laplacian_spectrum(PATH, nodes=3, frequencies=5)
    assert torch.isnan(vectors).sum(dim=1).tolist() == [2, 2, 2]
    assert torch.isnan(vectors).equal(torch.isnan(values))
    assert torch.allclose(values[0, :3], torch.tensor([0.0, 1.0, 3.0]), atol=1e-6)


def test_spectrum_ignores_direction_loops_and_repeats() -> None:
    messy = torch.tensor([[0, 1, 1, 2, 2], [1, 2, 2, 2, 2]])
    for ours, theirs in zip(
        laplacian_spectrum(messy, 3, 3), laplacian_spectrum(PATH, 3, 3), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("nodes", [1, 3])
def test_spectrum_without_edges_is_flat(nodes: int) -> None:
    vectors, values = laplacian_spectrum(NO_EDGES, nodes, frequencies=2)
    kept = min(nodes, 2)
    assert not values[:, :kept].any()
    assert torch.allclose(vectors[:, :kept].norm(dim=0), torch.ones(kept))


def test_return_probabilities_of_a_path() -> None:
    returns = return_probabilities(PATH, nodes=3, walks=4)
    expected = torch.tensor([[0, 0.5, 0, 0.5], [0, 1, 0, 1], [0, 0.5, 0, 0.5]])
    assert torch.allclose(returns, expected)


@pytest.mark.parametrize("nodes", [40, 700])
def test_return_probabilities_are_those_of_dense_powers(nodes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency.index_put_(tuple(edges), torch.ones(1, dtype=torch.float64), accumulate=True)
    transition = adjacency / adjacency.sum(dim=1, keepdim=True).clamp_min(1.0)
    powers = [torch.linalg.matrix_power(transition, step) for step in (1, 2, 3, 4)]
    expected = torch.stack([power.diagonal() for power in powers], dim=1).float()
    assert torch.allclose(return_probabilities(edges, nodes, 4), expected, rtol=1e-5, atol=1e-9)


def test_a_large_graph_has_the_spectrum_of_its_dense_matrix() -> None:
    nodes = 600
    generator = torch.Generator().manual_seed(0)
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    # loops, repeats and one direction alone among them
    edges = torch.cat([path, torch.randint(nodes, (2, 200), generator=generator)], dim=1)
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1.0
    adjacency.fill_diagonal_(0.0)
    laplacian = adjacency.sum(dim=1).diag() - adjacency
    vectors, values = laplacian_spectrum(edges, nodes, 6)
    expected = torch.linalg.eigvalsh(laplacian)[:6].float()
    assert torch.allclose(values, expected.expand(nodes, 6), atol=1e-6)
    assert torch.allclose(laplacian.float() @ vectors, vectors * values, atol=1e-5)
    assert torch.allclose(vectors.T @ vectors, torch.eye(6), atol=1e-5)


def test_return_probabilities_of_loops_and_dead_ends() -> None:
    edges = torch.tensor([[0, 1], [0, 2]])
    expected = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    assert torch.equal(return_probabilities(edges, nodes=3, walks=2), expected)


def test_degree_profile_by_hand() -> None:
    # 0 -> 1, 0 -> 2, 1 -> 0; out-degrees 2, 1, 0; node 3 stands alone
    edges = torch.tensor([[0, 0, 1], [1, 2, 0]])
    expected = [
        [2, 0, 1, 0.5, 0.5**0.5],
        [1, 2, 2, 2, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert torch.allclose(local_degree_profile(edges, nodes=4), torch.tensor(expected))


def test_biased_degree_profile_is_that_of_pyg() -> None:
    from torch_geometric.transforms import LocalDegreeProfile

    edges = torch.randint(9, (2, 30), generator=torch.Generator().manual_seed(0))
    theirs = LocalDegreeProfile()(Data(edge_index=edges, num_nodes=9)).x
    ours = local_degree_profile(edges, nodes=9, is_unbiased=False)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_columns_are_batched_like_nodes_and_edges() -> None:
    asked = Precompute(frequencies=4, walks=3, expander_degree=2)
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
        ({"walks": -1}, "walks must be at least 0, got -1"),
        ({"frequencies": -2}, "frequencies must be at least 0, got -2"),
        ({"expander_degree": -3}, "expander_degree must be at least 0, got -3"),
        ({"walks": 2.0}, "walks must be int, got 2.0"),
        ({"has_centrality": 1}, "has_centrality must be bool, got 1"),
        ({"degree_profile": "foo"}, "degree_profile must be one of 'none', 'biased', 'unbiased'"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_are_refused(asked: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        Precompute(**asked)


EVERYTHING = Precompute(3, 4, 2, True, True, "unbiased")


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


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def assert_same(ours: Data, theirs: Data) -> None:
    assert set(ours.keys()) == set(theirs.keys())
    for name in theirs.keys():  # noqa: SIM118 - a graph is no dictionary
        assert torch.equal(ours[name].nan_to_num(9), theirs[name].nan_to_num(9)), name


def test_graphs_of_a_batch_get_their_columns_one_by_one() -> None:
    graphs, generator = drawn_graphs(), seeded()
    alone = [add_columns(graph, EVERYTHING, generator) for graph in graphs]
    batch = Batch.from_data_list(graphs)
    together = add_columns(batch, EVERYTHING, seeded())
    assert_same(together, Batch.from_data_list(alone))
    for ours, theirs in zip(together.to_data_list(), alone, strict=True):
        assert_same(ours, theirs)
    assert_same(batch, Batch.from_data_list(graphs))
    for ours, theirs in zip(batch.to_data_list(), graphs, strict=True):
        assert_same(ours, theirs)


def test_edges_of_a_batch_may_lie_anywhere_and_a_batch_vector_is_enough() -> None:
    batch = Batch.from_data_list(drawn_graphs())
    truth = add_columns(batch, EVERYTHING, seeded())
    order = torch.randperm(batch.edge_index.shape[1], generator=seeded())
    mixed = Data(x=batch.x, edge_index=batch.edge_index[:, order], batch=batch.batch)
    asked = replace(EVERYTHING, has_clusters=False)
    done = add_columns(mixed, asked, seeded())
    for name in ("laplacian_values", "random_walk", "centrality", "degree_profile"):
        assert torch.allclose(done[name], truth[name], atol=1e-5, equal_nan=True), name
    assert torch.equal(done.expander_index, truth.expander_index)


def test_batches_of_a_store_keep_what_they_have() -> None:
    store = GraphStore.from_pyg(drawn_graphs())
    batch = store.batch(torch.tensor([3, 0, 2]), by_source=True)
    done = add_columns(batch, EVERYTHING)
    assert set(batch.keys()) < set(done.keys())
    for name in batch.keys():  # noqa: SIM118
        assert torch.equal(done[name], batch[name]), name
    assert done.get_example(1).expander_index.max() == 11
    without_graphs = add_columns(store.batch(torch.tensor([], dtype=torch.int64)), EVERYTHING)
    assert without_graphs.laplacian_vectors.shape == (0, 3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"edge_index": torch.tensor([[0, -1], [1, 0]])}, "edge_index must hold .*, got -1"),
        (
            {"edge_index": torch.tensor([[0, 1], [1, 4]])},
            "must hold numbers of the 4 nodes.* got 4",
        ),
        ({"edge_index": None}, "graphs.edge_index must be given as pairs of nodes, got None"),
        ({"edge_index": torch.ones(3, 2, dtype=torch.int64)}, r"\[2, edges\], got .* \[3, 2\]"),
        ({"edge_index": torch.ones(2, 2)}, "edge_index must hold integers .*, got torch.float32"),
        (
            {"batch": torch.tensor([0, 0, 1, 1])},
            "edge_index must join nodes of the same graph, got an edge from node 1 of graph 0 to "
            "node 2 of graph 1 at 1",
        ),
        ({"batch": torch.tensor([0, 1, 0, 1])}, "batch must be sorted, got 0 after 1 at node 2"),
        ({"batch": torch.tensor([0, 0, 0])}, r"graphs.batch must have shape \[4\], got \[3\]"),
        (
            {"ptr": torch.tensor([0, 4]), "batch": torch.tensor([0, 0, 0, 1])},
            "numbers of the 1 gra",
        ),
    ],
    ids=[
        *("negative node", "unknown node", "no edges", "other shape", "floats"),
        *("edge between graphs", "unsorted", "short batch", "unknown graph"),
    ],
)
def test_graphs_that_cannot_be_are_refused(columns: dict[str, Tensor], message: str) -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = Data(**{"x": torch.ones(4, 1), "edge_index": edges, **columns})
    with typecheck_off(), pytest.raises(UserError, match=message):
        add_columns(graph, Precompute(walks=2))

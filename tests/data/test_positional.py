"""Columns computed once per graph."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from graphmamba.data.positional import (
    Precompute,
    add_columns,
    laplacian_spectrum,
    local_degree_profile,
    return_probabilities,
)
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

"""Return probabilities of random walks."""

import pytest
import torch

from graphmamba.data.transforms import random_walk
from graphmamba.data.transforms.random_walk import return_probabilities
from tests.helpers.graphs import graph_columns


@pytest.mark.parametrize("nodes", [40, 700])
def test_return_probabilities_are_those_of_dense_powers(nodes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency.index_put_(tuple(edges), torch.ones(1, dtype=torch.float64), accumulate=True)
    transition = adjacency / adjacency.sum(dim=1, keepdim=True).clamp_min(1.0)
    powers = [torch.linalg.matrix_power(transition, step) for step in (1, 2, 3, 4)]
    expected = torch.stack([power.diagonal() for power in powers], dim=1).float()
    found = return_probabilities(graph_columns((edges, nodes)), 4)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-9)


def test_return_probabilities_of_loops_and_dead_ends() -> None:
    edges = torch.tensor([[0, 1], [0, 2]])
    expected = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    assert torch.equal(return_probabilities(graph_columns((edges, 3)), walk_length=2), expected)


def test_a_large_graph_has_estimates_without_a_walk_from_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(300, (2, 900), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    columns = graph_columns((edges, 300))
    exact = return_probabilities(columns, 12)
    monkeypatch.setattr(random_walk, "EXACT_UP_TO", 200)
    monkeypatch.setattr(random_walk, "_walk_back", None)
    found = return_probabilities(columns, 12)
    torch.testing.assert_close(found[:, :2], exact[:, :2])
    assert float((found - exact).abs().mean()) < 0.005

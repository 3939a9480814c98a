"""Eigenvector centrality."""

import networkx
import pytest
import torch
from torch import Tensor

from graphmamba.data.node_scores import eigenvector_centrality


def ring_of(nodes: int, start: int = 0) -> Tensor:
    around = torch.arange(nodes)
    return torch.stack([around, (around + 1) % nodes]) + start


@pytest.mark.parametrize("nodes", [2, 20, 150])
def test_centrality_is_that_of_networkx(nodes: int) -> None:
    graph = networkx.connected_watts_strogatz_graph(max(nodes, 3), 2, 0.4, seed=1)
    edges = torch.tensor(list(graph.edges)).T
    expected = networkx.eigenvector_centrality_numpy(graph)
    centrality = eigenvector_centrality(edges, len(graph))
    wanted = torch.tensor([expected[node] for node in range(len(graph))])
    assert torch.allclose(centrality, wanted.float(), atol=1e-5)


@pytest.mark.parametrize("size", [10, 50])
def test_equal_parts_have_equal_scores(size: int) -> None:
    edges = torch.cat([ring_of(size), ring_of(size, start=size)], dim=1)
    centrality = eigenvector_centrality(edges, 2 * size)
    assert torch.allclose(centrality, torch.full((2 * size,), (2 * size) ** -0.5), atol=1e-5)


@pytest.mark.parametrize("parts", [10, 100])
def test_many_parts_lead_together_and_alike_each_time(parts: int) -> None:
    edges = torch.arange(2 * parts).reshape(parts, 2).T
    lone = torch.full((2 * parts + 3,), (2 * parts) ** -0.5)
    lone[2 * parts :] = 0.0
    for _ in range(3):
        centrality = eigenvector_centrality(edges, 2 * parts + 3)
        assert torch.allclose(centrality, lone, atol=1e-6)
    again = eigenvector_centrality(edges, 2 * parts + 3)
    assert torch.equal(again, centrality)


@pytest.mark.parametrize("nodes", [0, 1, 3, 100])
def test_no_edges_no_difference(nodes: int) -> None:
    edges = torch.empty(2, 0, dtype=torch.int64)
    centrality = eigenvector_centrality(edges, nodes)
    assert centrality.tolist() == pytest.approx([max(nodes, 1) ** -0.5] * nodes, rel=1e-5)


def test_directions_and_repeats_do_not_matter() -> None:
    edges = torch.tensor([[0, 1, 2, 2], [1, 2, 3, 0]])
    again = torch.cat([edges, edges.flip(0), edges], dim=1)
    assert torch.equal(eigenvector_centrality(edges, 4), eigenvector_centrality(again, 4))

"""Eigenvector centrality."""

import networkx
import numpy as np
import pytest
import torch
from torch import Tensor

from graphmamba.data.transforms.centrality import eigenvector_centralities, leading_vector
from tests.helpers.graphs import graph_columns

SMALL_WORLD = networkx.connected_watts_strogatz_graph(150, 4, 0.3, seed=0)
GRAPHS = {
    "two nodes": networkx.path_graph(2),
    "path": networkx.path_graph(300),
    "star": networkx.star_graph(200),
    "complete": networkx.complete_graph(300),
    "regular": networkx.random_regular_graph(4, 200, seed=0),
    "grid": networkx.grid_2d_graph(15, 15),
    "hubs": networkx.barabasi_albert_graph(300, 1, seed=0),
    "falls apart": networkx.gnp_random_graph(300, 0.005, seed=1),
    "two alike": networkx.disjoint_union(SMALL_WORLD, SMALL_WORLD),
    "others that lead alike": networkx.disjoint_union_all(
        [networkx.star_graph(4), networkx.cycle_graph(5), networkx.complete_graph(3)] * 9
    ),
    "nearly alike": networkx.disjoint_union(networkx.path_graph(100), networkx.path_graph(101)),
    "two ends": networkx.barbell_graph(20, 60),
    "a loop": networkx.Graph([(0, 1), (1, 1), (1, 2)]),
}


def eigenvector_centrality(edges: Tensor, nodes: int) -> Tensor:
    return eigenvector_centralities(graph_columns((edges, nodes)))


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


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_it_is_what_leads_of_the_vector_of_ones(graph: networkx.Graph) -> None:
    adjacency = networkx.to_numpy_array(graph)
    values, vectors = np.linalg.eigh(adjacency)
    leads = vectors[:, values >= values[-1] - 1e-9]
    truth = leads @ leads.sum(axis=0)
    pairs = np.stack(adjacency.nonzero())
    found = leading_vector(pairs, len(graph))
    # the paths differ by 2e-5 in their eigenvalues, which rounding is divided by
    assert np.abs(found - truth).max() <= 1e-9
    assert np.array_equal(found, leading_vector(pairs, len(graph)))

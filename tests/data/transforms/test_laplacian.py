"""Laplacian spectra."""

import networkx
import pytest
import torch
from torch import Tensor

from graphmamba.data.transforms import laplacian
from graphmamba.data.transforms.laplacian import laplacian_spectra, smallest_eigenpairs
from tests.helpers.graphs import graph_columns

Graph = tuple[Tensor, int]


def edges_of(graph: networkx.Graph) -> Graph:
    graph = networkx.convert_node_labels_to_integers(graph)
    pairs = torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T
    return torch.cat([pairs, pairs.flip(0)], dim=1), len(graph)


def random_graph(nodes: int, edges: int, seed: int) -> Graph:
    """Directions, self-loops, repeated edges and isolated nodes all occur."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(nodes, (2, edges), generator=generator), nodes


NONE = torch.empty(2, 0, dtype=torch.int64)


GRAPHS: dict[str, Graph] = {
    "one node": (NONE, 1),
    "a loop alone": (torch.zeros(2, 3, dtype=torch.int64), 1),
    "empty": (NONE, 0),
    "no edges": (NONE, 5),
    "path": edges_of(networkx.path_graph(12)),
    "path again": edges_of(networkx.path_graph(12)),
    "star": edges_of(networkx.star_graph(11)),
    "two rings": edges_of(
        networkx.disjoint_union(networkx.cycle_graph(6), networkx.cycle_graph(6))
    ),
    "many pairs": (torch.arange(200).reshape(100, 2).T, 200),
    "sparse": random_graph(30, 20, 0),
    "dense": random_graph(25, 300, 1),
    "large": edges_of(networkx.connected_watts_strogatz_graph(290, 4, 0.3, seed=0)),
}


GRAPH_SET = graph_columns(*GRAPHS.values())


def rows_of(column: Tensor, place: int) -> Tensor:
    return column[GRAPH_SET.node_ptr[place] : GRAPH_SET.node_ptr[place + 1]]


def assert_same_spectrum(ours: tuple[Tensor, Tensor], edges: Tensor, nodes: int) -> None:
    """Equal values, and equal projectors onto each eigenspace that is there as a whole."""
    vectors, values = ours
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1.0
    adjacency.fill_diagonal_(0.0)
    found = torch.linalg.eigh(adjacency.sum(dim=1).diag() - adjacency)
    every_vector = found.eigenvectors.float()
    every_value = found.eigenvalues.float().expand(nodes, nodes)
    asked = values.shape[1]
    kept = min(nodes, asked)
    assert torch.isnan(vectors).equal(torch.isnan(values))
    assert torch.isnan(values[:, kept:]).all()
    assert torch.allclose(values[:, :kept], every_value[:, :kept], atol=2e-6)
    gram = vectors[:, :kept].T @ vectors[:, :kept]
    assert torch.allclose(gram, torch.eye(kept), atol=1e-5)
    for value in every_value[:1, :kept].unique():
        # equal numbers come out of the solver a rounding apart
        same = (every_value[0] - value).abs() < 1e-5 if nodes else every_value[:, 0] > 0
        if same[kept:].any():
            continue
        truth, found = every_vector[:, same], vectors[:, same[:asked].nonzero().flatten()]
        assert torch.allclose(found @ found.T, truth @ truth.T, atol=2e-4)


@pytest.mark.parametrize("dense_up_to", [512, 10], ids=["dense", "sparse"])
@pytest.mark.parametrize("num_eigenvectors", [1, 4, 10, 40])
def test_spectra_are_those_of_each_graph(
    monkeypatch: pytest.MonkeyPatch, dense_up_to: int, num_eigenvectors: int
) -> None:
    monkeypatch.setattr(laplacian, "DENSE_UP_TO", dense_up_to)
    vectors, values = laplacian_spectra(GRAPH_SET, num_eigenvectors)
    for place, (edges, nodes) in enumerate(GRAPHS.values()):
        assert_same_spectrum((rows_of(vectors, place), rows_of(values, place)), edges, nodes)


@pytest.mark.parametrize(
    "graph",
    [
        networkx.star_graph(350),
        networkx.star_graph(700),
        networkx.complete_graph(300),
        networkx.complete_bipartite_graph(130, 160),
        networkx.random_regular_graph(4, 600, seed=0),
        networkx.grid_2d_graph(18, 18),
        networkx.path_graph(350),
        networkx.disjoint_union(networkx.star_graph(300), networkx.path_graph(290)),
        networkx.barabasi_albert_graph(350, 1, seed=0),
        networkx.empty_graph(70),
        # twelve paths that hang on one node, of whose copies ARPACK misses some
        networkx.from_edgelist((max(0, node - 12), node) for node in range(1, 613)),
    ],
    ids=str,
)
def test_the_sparse_solver_finds_every_copy_of_an_eigenvalue(
    graph: networkx.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laplacian, "DENSE_UP_TO", 60)
    edges, nodes = edges_of(graph)
    values, vectors = smallest_eigenpairs(edges.numpy(), nodes, 10)
    repeated = torch.from_numpy(values).float().expand(nodes, 10)
    assert_same_spectrum((torch.from_numpy(vectors).float(), repeated), edges, nodes)


def test_a_large_part_is_neither_factored_nor_made_a_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = torch.arange(20 * 33).view(20, 33)
    pairs = [(place[:, 1:], place[:, :-1]), (place[1:], place[:-1])]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
    _, values = laplacian_spectra(graph_columns((edges, 660)), 5)
    monkeypatch.setattr(laplacian, "FACTORS_UP_TO", 600)
    monkeypatch.setattr(laplacian, "MATRIX_UP_TO", 600)
    monkeypatch.setattr("scipy.sparse.linalg.splu", None)
    vectors, found = laplacian_spectra(graph_columns((edges, 660)), 5)
    torch.testing.assert_close(found, values, rtol=0.02, atol=1e-6)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(5), rtol=1e-5, atol=1e-5)

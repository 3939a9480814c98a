"""Laplacian spectra."""

import pytest
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from graphmamba.data.transforms import laplacian
from tests.helpers.graphs import graph_columns

CYCLE = to_undirected(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
PATH = to_undirected(torch.tensor([[0, 1], [1, 2]]))
NO_EDGES = torch.empty(2, 0, dtype=torch.long)


def laplacian_spectrum(edges: Tensor, nodes: int, num_eigenvectors: int) -> tuple[Tensor, Tensor]:
    return laplacian.laplacian_spectra(graph_columns((edges, nodes)), num_eigenvectors)


def test_spectrum_of_a_cycle() -> None:
    vectors, values = laplacian_spectrum(CYCLE, nodes=4, num_eigenvectors=3)
    assert torch.allclose(values, torch.tensor([0.0, 2.0, 2.0]).expand(4, 3), atol=1e-6)
    assert torch.allclose(vectors.T @ vectors, torch.eye(3), atol=1e-6)
    assert torch.allclose(vectors[:, 0].abs(), torch.full((4,), 0.5))


def test_spectrum_pads_small_graphs_with_nan() -> None:
    vectors, values = laplacian_spectrum(PATH, nodes=3, num_eigenvectors=5)
    assert torch.isnan(vectors).sum(dim=1).tolist() == [2, 2, 2]
    assert torch.isnan(vectors).equal(torch.isnan(values))
    assert torch.allclose(values[0, :3], torch.tensor([0.0, 1.0, 3.0]), atol=1e-6)


def test_a_large_graph_has_the_spectrum_of_its_dense_matrix() -> None:
    nodes = 600
    generator = torch.Generator().manual_seed(0)
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    # loops, repeats and one direction alone among them
    edges = torch.cat([path, torch.randint(nodes, (2, 200), generator=generator)], dim=1)
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1.0
    adjacency.fill_diagonal_(0.0)
    matrix = adjacency.sum(dim=1).diag() - adjacency
    vectors, values = laplacian_spectrum(edges, nodes, 6)
    expected = torch.linalg.eigvalsh(matrix)[:6].float()
    assert torch.allclose(values, expected.expand(nodes, 6), atol=1e-6)
    assert torch.allclose(matrix.float() @ vectors, vectors * values, atol=1e-5)
    assert torch.allclose(vectors.T @ vectors, torch.eye(6), atol=1e-5)


def test_a_large_part_is_neither_factored_nor_made_a_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = torch.arange(20 * 33).view(20, 33)
    pairs = [(place[:, 1:], place[:, :-1]), (place[1:], place[:-1])]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
    _, values = laplacian_spectrum(edges, 660, 5)
    monkeypatch.setattr(laplacian, "FACTORS_UP_TO", 600)
    monkeypatch.setattr(laplacian, "MATRIX_UP_TO", 600)
    monkeypatch.setattr("scipy.sparse.linalg.splu", None)
    vectors, found = laplacian_spectrum(edges, 660, 5)
    torch.testing.assert_close(found, values, rtol=0.02, atol=1e-6)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(5), rtol=1e-5, atol=1e-5)

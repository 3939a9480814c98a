"""Eigenvector centrality, which only some orders read, of one graph."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.leading_vector import DEGENERATE, leading_vector

DENSE_UP_TO = 64


def eigenvector_centrality(
    edge_index: Int[Tensor, "2 edges"], nodes: int
) -> Float[Tensor, " nodes"]:
    """Leading eigenvector of the undirected graph, of length 1 and without negative entries.

    Where several eigenvectors lead, as in a graph of equal parts, it is what they contain of the
    vector of ones, so that equal parts have equal scores.
    """
    pairs = _undirected(edge_index)
    if not pairs.numel():
        return torch.full((nodes,), max(nodes, 1) ** -0.5)
    found = None if nodes <= DENSE_UP_TO else leading_vector(pairs.numpy(), nodes)
    centrality = _leading_dense(pairs, nodes) if found is None else torch.from_numpy(found)
    return torch.nn.functional.normalize(centrality.abs(), dim=0).float()


def _leading_dense(pairs: Int[Tensor, "2 pairs"], nodes: int) -> Float[Tensor, " nodes"]:
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency[pairs[0], pairs[1]] = 1.0
    values, vectors = torch.linalg.eigh(adjacency)
    leading = vectors[:, values >= values.max() - DEGENERATE]
    return leading @ leading.sum(dim=0)


def _undirected(edge_index: Int[Tensor, "2 edges"]) -> Int[Tensor, "2 pairs"]:
    """Every edge once in both directions."""
    return torch.unique(torch.cat([edge_index, edge_index.flip(0)], dim=1), dim=1)

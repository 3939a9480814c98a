"""Eigenvector centrality of all graphs."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import Block, blocks, edges_of, run_all, simple_columns
from graphmamba.data.tables import GraphColumns
from graphmamba.data.transforms.laplacian import DENSE_UP_TO, ENTRIES

WIDTH, KEPT = 32, 8  # size of the Krylov space, and of what is kept at a restart
DEGENERATE = 1e-9  # eigenvalues closer than this count as equal
TOLERANCE = 1e-14
ROUNDING = 1e-12
EXACT_UP_TO, RESTARTS = 5_000, 100
"""If Lanczos does not converge, graphs of up to so many nodes are solved densely; for larger ones
the result after so many restarts is taken, at a cost linear in the edges."""


def leading_vector(
    pairs: Int[np.ndarray, "2 pairs"], nodes: int
) -> Float[np.ndarray, " nodes"] | None:
    """Projection of the vector of ones onto the leading eigenvectors, by Lanczos' method.

    Started from ones and restarted from its best vectors, it stays in the Krylov space of ones, and
    stops when that is exhausted, as in a graph of equal components, where ARPACK would go on from
    random vectors. None if it does not converge, as if two components have nearly equal
    eigenvalues; but the best vector found if the graph is too large for another method. `pairs` has
    each edge in both directions.
    """
    from scipy.sparse import csr_matrix

    matrix = csr_matrix((np.ones(pairs.shape[1]), tuple(pairs)), shape=(nodes, nodes))
    basis, images = np.empty((WIDTH + 1, nodes)), np.empty((WIDTH, nodes))
    basis[0], known = nodes**-0.5, 0
    is_large = nodes > EXACT_UP_TO
    for _ in range(RESTARTS if is_large else nodes):
        known, length = _extend(matrix, basis, images, known)
        values, mix = np.linalg.eigh(basis[:known] @ images[:known].T)
        # rounding can bring in a second vector that leads
        leads = mix[:, values >= values[-1] - DEGENERATE].T
        if length * np.abs(leads[:, -1]).max() <= TOLERANCE * max(values[-1], 1.0):
            vectors = leads @ basis[:known]
            return vectors.sum(axis=1) @ vectors
        best = mix[:, -KEPT:].T
        # the vector beside the space is beside its best ones, too
        basis[:KEPT], images[:KEPT] = best @ basis[:known], best @ images[:known]
        basis[KEPT], known = basis[known], KEPT
    best = basis[KEPT - 1 : KEPT]
    return best.sum(axis=1) @ best if is_large else None


def _extend(
    matrix: Any,
    basis: Float[np.ndarray, "vectors nodes"],
    images: Float[np.ndarray, "room nodes"],
    known: int,
) -> tuple[int, float]:
    """Multiply on until the space is full or holds all images; tells its width, what is beside."""
    length = 0.0
    while known < len(images):
        images[known] = rest = matrix @ basis[known]
        known += 1
        # the second pass removes what rounding leaves of the first
        for _ in range(2):
            rest = rest - (basis[:known] @ rest) @ basis[:known]
        length = float(np.linalg.norm(rest))
        if length <= ROUNDING * max(float(np.linalg.norm(images[known - 1])), 1.0):
            return known, 0.0
        basis[known] = rest / length
    return known, length


def eigenvector_centralities(columns: GraphColumns) -> Float[Tensor, " nodes"]:
    """Leading eigenvector of each undirected graph, of length 1 and non-negative.

    If the leading eigenvalue is repeated, as in a graph of equal components, the vector of ones is
    projected onto its eigenspace, so that equal components have equal scores.
    """
    simple = simple_columns(columns, has_loops=True)
    scores = torch.empty(int(columns.node_ptr[-1]))

    def adjacency_of(block: Block) -> Float[Tensor, "graphs size size"]:
        place, source, target = edges_of(simple, block)
        adjacency = torch.zeros(len(block.graphs), block.size, block.size, dtype=torch.float64)
        adjacency[place, source, target] = 1.0
        return adjacency

    def solve(block: Block) -> None:
        scores[block.nodes] = _leading(adjacency_of(block)).float().flatten()

    def solve_large(block: Block) -> None:
        pairs = edges_of(simple, block)[1:].numpy()
        found = leading_vector(pairs, block.size)
        if found is None:
            solve(block)
        else:
            centrality = torch.from_numpy(found).abs()
            scores[block.nodes] = torch.nn.functional.normalize(centrality, dim=0).float()

    small, large = blocks(simple, ENTRIES, largest=DENSE_UP_TO)
    run_all(solve, small, "Centrality")
    run_all(solve_large, large, "Centrality, sparse")
    return scores


def _leading(adjacency: Float[Tensor, "graphs size size"]) -> Float[Tensor, "graphs size"]:
    """Projection of the vector of ones onto the leading eigenvectors, normalised."""
    values, vectors = torch.linalg.eigh(adjacency)
    is_leading = values >= values[:, -1:] - DEGENERATE
    weight = vectors.sum(dim=1) * is_leading
    found = (vectors @ weight[:, :, None]).squeeze(2).abs()
    return torch.nn.functional.normalize(found, dim=1)

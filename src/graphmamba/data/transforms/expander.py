"""Random regular graphs over the nodes of a graph: few edges, short paths between all nodes."""

import math

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.data.parallel import run_all
from graphmamba.data.tables import GraphColumns, Pairs, boundaries
from graphmamba.ops.random import draw_bits

COMPLETE_UP_TO = 10  # graphs of at most this many nodes get all pairs instead
ATTEMPTS = 100
DENSE_UP_TO = 200  # up to so many nodes, computing all eigenvalues is cheaper than the two needed
GAP_TOLERANCE = 1e-6


def expander_edges(
    nodes: int, degree: int, generator: torch.Generator | None = None
) -> Int[Tensor, "2 expanders"]:
    """Draw `degree` permutations and join each node with its images, in both directions.

    Sampled again, up to a hundred times, until the spectral gap is near the optimum of a regular
    graph (Ramanujan); the best sample is kept. Self-loops and repeated edges stay, as in the
    published code of Exphormer (https://arxiv.org/abs/2303.06147).
    """
    check_least("nodes", nodes, 0)
    check_least("degree", degree, 1)
    if nodes <= COMPLETE_UP_TO:
        pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).reshape(-1, 2).T
        return pairs[:, pairs[0] != pairs[1]]
    degree = min(degree, nodes - 1)
    wanted = max(0.0, 2 * degree - 2 * math.sqrt(2 * degree - 1) - 0.1)
    best, best_gap = _draw(nodes, degree, generator), -1.0
    for attempt in range(ATTEMPTS):
        drawn = best if attempt == 0 else _draw(nodes, degree, generator)
        gap = spectral_gap(drawn, nodes)
        if gap > best_gap:
            best, best_gap = drawn, gap
        if best_gap >= wanted:
            break
    return best


def spectral_gap(edge_index: Int[Tensor, "2 edges"], nodes: int) -> float:
    """Second smallest eigenvalue of Deg - Adj of a regular graph; 0 if disconnected.

    Repeated edges count, each as often as it is there. Self-loops count in Deg and not in Adj, as
    in the published code, which raises the value a little.
    """
    if nodes > DENSE_UP_TO:
        return _sparse_gap(edge_index, nodes)
    laplacian = torch.zeros(nodes, nodes, dtype=torch.float64)
    ones = torch.ones(edge_index.shape[1], dtype=torch.float64)
    laplacian.index_put_((edge_index[0], edge_index[1]), -ones, accumulate=True)
    laplacian.diagonal().copy_(-laplacian.sum(dim=1))
    return float(torch.linalg.eigvalsh(laplacian)[1])


def _sparse_gap(edge_index: Int[Tensor, "2 edges"], nodes: int) -> float:
    """Sparse version: all degrees are equal, so the second largest eigenvalue of Adj decides."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import LinearOperator, eigsh

    degree = edge_index.shape[1] / nodes
    source, target = edge_index[:, edge_index[0] != edge_index[1]].numpy()
    matrix = coo_matrix((np.ones(len(source)), (source, target)), shape=(nodes, nodes)).tocsr()
    # Any two fixed starts that are no eigenvectors. From one alone, two parts that nothing joins
    # would be found as a single one: both lead alike, and what is left of the start has no share.
    places = np.arange(nodes)
    values, vectors = eigsh(matrix, k=1, which="LA", v0=np.cos(places), tol=GAP_TOLERANCE)
    value, vector = values[0], vectors[:, 0]
    beside = LinearOperator(
        matrix.shape, matvec=lambda x: matrix @ x - value * vector * (vector @ x), dtype=float
    )
    second = eigsh(
        beside, k=1, which="LA", v0=np.sin(places), tol=GAP_TOLERANCE, return_eigenvectors=False
    )
    return degree - float(second[0])


def _draw(nodes: int, degree: int, generator: torch.Generator | None) -> Int[Tensor, "2 expanders"]:
    images = torch.stack([torch.randperm(nodes, generator=generator) for _ in range(degree)])
    source, target = torch.arange(nodes).repeat(degree), images.flatten()
    return torch.stack([torch.cat([source, target]), torch.cat([target, source])])


def all_expanders(columns: GraphColumns, degree: int, seed: int = 0) -> Pairs:
    """`expander_edges` of every graph; each depends only on the index of the graph."""
    counts = columns.node_ptr.diff()
    seeds: list[int] = draw_bits(torch.tensor(seed), torch.arange(len(counts))).tolist()

    def draw(graph: int) -> Int[Tensor, "2 expanders"]:
        generator = torch.Generator().manual_seed(seeds[graph])
        return expander_edges(int(counts[graph]), degree, generator)

    found = run_all(draw, range(len(seeds)), "Expander graphs")
    index = torch.cat([torch.empty(2, 0, dtype=torch.int64), *found], dim=1)
    widths = torch.tensor([edges.shape[1] for edges in found], dtype=torch.int64)
    return Pairs(boundaries(widths), index)

"""Laplacian eigenvectors of all graphs: dense for small graphs, LOBPCG for large ones."""

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import Block, blocks, edges_of, run_all
from graphmamba.data.tables import GraphColumns

DENSE_UP_TO = 512  # up to so many nodes, computing all eigenvectors is cheaper than the few needed
ENTRIES = 1 << 20  # matrix entries in one call, which fit into the cache of a core
SPARE = 4  # extra vectors of the iteration, for faster convergence
FACTORS_UP_TO = 20_000
"""Largest connected component that is factorised, which takes memory beyond its edges."""
SHIFT = 1e-5  # added to the diagonal, so that the singular Laplacian can be factorised
TOLERANCE, FACTORED_STEPS = 1e-10, 60
"""With a factorisation: final residual, relative to the largest degree, and most steps."""
RESIDUAL, STEPS = 1e-4, 200
"""Without a factorisation: final residual, relative to the mean degree, and most steps."""
MATRIX_UP_TO, LARGEST_RESIDUAL = 2_000, 1e-7
"""Up to so many nodes, an iteration that ends above this residual is replaced by a dense one."""


def laplacian_spectra(
    columns: GraphColumns, num_eigenvectors: int
) -> tuple[Float[Tensor, "nodes eigenvectors"], Float[Tensor, "nodes eigenvectors"]]:
    """Eigenvectors and eigenvalues of Deg - Adj of each graph, from the smallest, zero included.

    Directions, self-loops and repeated edges are dropped before. A graph with fewer nodes than
    `num_eigenvectors` has NaN in the missing columns. The eigenvalues are repeated for each node,
    so that both are ordinary node columns.

    Computed in float64: the error of float32, about 1e-6, is as large as the differences of the
    smallest eigenvalues of a long molecule. Graphs are sorted by size, so that blocks, and results,
    are the same every time.
    """
    spectra = torch.full((2, int(columns.node_ptr[-1]), num_eigenvectors), torch.nan)

    def solve_dense(block: Block) -> None:
        place, source, target = edges_of(columns, block)
        size, graphs = block.size, len(block.graphs)
        laplacian = torch.zeros(graphs, size, size, dtype=torch.float64)
        # an entry that is written again stays -1: neither directions nor repeated edges matter
        laplacian[place, source, target] = -1.0
        laplacian[place, target, source] = -1.0
        diagonal = laplacian.diagonal(dim1=1, dim2=2)
        diagonal.zero_()
        diagonal.copy_(-laplacian.sum(dim=2))
        values, vectors = torch.linalg.eigh(laplacian)
        kept = min(size, num_eigenvectors)
        rows = block.nodes.reshape(graphs, size)
        spectra[0][rows, :kept] = vectors[:, :, :kept].float()
        spectra[1][rows, :kept] = values[:, None, :kept].expand(-1, size, -1).float()

    def solve_sparse(block: Block) -> None:
        kept = min(block.size, num_eigenvectors)
        edges = edges_of(columns, block)[1:].numpy()
        values, vectors = smallest_eigenpairs(edges, block.size, kept)
        spectra[0][block.nodes, :kept] = torch.from_numpy(vectors).float()
        spectra[1][block.nodes, :kept] = torch.from_numpy(values).float()

    small, large = blocks(columns, ENTRIES, largest=DENSE_UP_TO)
    run_all(solve_dense, small, "Laplacian spectrum")
    run_all(solve_sparse, large, "Laplacian spectrum, sparse")
    # rounding can leave the zero eigenvalue a little below zero
    return spectra[0], spectra[1].clamp_min_(0.0)


def smallest_eigenpairs(
    edges: Int[np.ndarray, "2 edges"], nodes: int, count: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "nodes count"]]:
    """The `count` smallest eigenvalues of Deg - Adj and their eigenvectors.

    Connected components are solved separately: their constant vectors span the kernel exactly,
    which an iteration would not separate well.
    """
    from scipy.sparse import csr_matrix, diags
    from scipy.sparse.csgraph import connected_components

    edges = edges[:, edges[0] != edges[1]]
    one_way = csr_matrix((np.ones(edges.shape[1]), tuple(edges)), shape=(nodes, nodes))
    adjacency = (one_way + one_way.T).tocsr()
    adjacency.data[:] = 1.0
    laplacian = (diags(adjacency.sum(axis=1).A1) - adjacency).tocsr()
    parts, part = connected_components(adjacency, directed=False)
    by_part = np.split(np.argsort(part, kind="stable"), np.bincount(part).cumsum()[:-1])
    values, vectors = [], []
    for members in by_part[: max(count, 0)] if parts >= count else by_part:
        wanted = 1 if parts >= count else min(count, len(members))
        found, local = _solve_part(laplacian, members, wanted)
        spread = np.zeros((nodes, wanted))
        spread[members] = local
        values.append(found)
        vectors.append(spread)
    order = np.argsort(np.concatenate(values), kind="stable")[:count]
    return np.concatenate(values)[order], np.concatenate(vectors, axis=1)[:, order]


def _solve_part(
    laplacian: Any, members: Int[np.ndarray, " members"], count: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "members count"]]:
    """Solve a connected component by LOBPCG orthogonal to its constant vector, or densely.

    A block method, unlike ARPACK, since call graphs and molecules have highly repeated eigenvalues.
    With the inverse as preconditioner it takes few steps. Without it, time and memory are linear in
    the edges; vectors are orthonormal and values are Rayleigh quotients, but if eigenvalues are
    close together, as in a large random graph, they need not be the smallest ones.
    """
    from scipy.sparse import diags, identity
    from scipy.sparse.linalg import LinearOperator, lobpcg, splu

    size = len(members)
    constant = np.full((size, 1), size**-0.5)
    if count == 1:
        return np.zeros(1), constant
    part = laplacian[members][:, members]
    if size > max(DENSE_UP_TO, 10 * (count + SPARE)):
        degrees, is_factored = part.diagonal(), size <= FACTORS_UP_TO
        if is_factored:
            shifted = (part + SHIFT * identity(size)).tocsc()
            invert = splu(
                shifted, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
            ).solve
            inverse = LinearOperator(part.shape, matvec=invert, matmat=invert, dtype=float)
            steps, allowed = FACTORED_STEPS, TOLERANCE * degrees.max()
        else:
            inverse, steps, allowed = diags(1.0 / degrees), STEPS, RESIDUAL * degrees.mean()
        start = np.random.default_rng(0).standard_normal((size, count - 1 + SPARE))
        with warnings.catch_warnings():
            # it says so where it ends before the residual is small
            warnings.simplefilter("ignore", UserWarning)
            values, vectors = lobpcg(
                part, start, M=inverse, Y=constant, largest=False, maxiter=steps, tol=allowed
            )
        order = np.argsort(values, kind="stable")[: count - 1]
        values, vectors = values[order], vectors[:, order]
        errors = np.linalg.norm(part @ vectors - vectors * values, axis=0)
        if size > MATRIX_UP_TO or errors.max() <= LARGEST_RESIDUAL * degrees.max():
            return np.append(0.0, values), np.append(constant, vectors, axis=1)
    every_value, every_vector = np.linalg.eigh(part.toarray())
    return every_value[:count], every_vector[:, :count]

"""Laplacian spectra of all graphs: dense for small graphs, sparse for large ones."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import Block, blocks, edges_of, run_all
from graphmamba.data.tables import GraphColumns

DENSE_UP_TO = 512
"""Nodes up to which all eigenvectors at once cost less than the few asked for, one by one."""
ENTRIES = 1 << 20
"""Matrix entries in one call: what stays in the cache of a core."""
SHIFT = 1e-5
"""Added to the diagonal, so that the singular Laplacian can be inverted."""
SPARE = 4
"""Vectors iterated beside those asked for: the next eigenvalues limit the speed of convergence."""
DEPTH = 10
"""Blocks of a Krylov space before it is cut down to its best block."""
FACTORS_UP_TO = 20_000
"""Nodes of a connected part up to which it is factored, which takes memory beyond its edges."""
MATRIX_UP_TO = 2_000
"""Nodes up to which one that an iteration does not solve is made a dense matrix."""
STEPS, RESIDUAL = 200, 1e-4
"""Most steps of the iteration on larger ones; the residual that it ends at, times the degree."""
ROUNDS = 30
TOLERANCE = 1e-10
ROUNDING = 1e-13


def laplacian_spectra(
    columns: GraphColumns, num_eigenvectors: int
) -> tuple[Float[Tensor, "nodes eigenvectors"], Float[Tensor, "nodes eigenvectors"]]:
    """Eigenvectors and eigenvalues of Deg - Adj of each graph, from the smallest, zero included.

    Directions, self-loops and repeated edges are dropped before. A graph with fewer nodes than
    `num_eigenvectors` has NaN in the missing columns. The eigenvalues are repeated for each node,
    so that both columns can be batched like any other.

    Computed in double precision: single precision is off by about 1e-6, which is as much as the
    smallest eigenvalues of a long molecule differ. The smallest graphs come first, so that the
    work is cut alike, and gives the same numbers, every time.
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

    Connected parts are solved by themselves: their constant vectors span the kernel exactly, where
    an iteration has trouble to tell one zero from another.
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
    size = len(members)
    if count == 1:
        return np.zeros(1), np.full((size, 1), size**-0.5)
    part = laplacian[members][:, members]
    # the iteration needs room for its basis
    is_dense = size <= max(DENSE_UP_TO, 2 * DEPTH * (count + SPARE))
    found = None
    if not is_dense and size <= FACTORS_UP_TO:
        found = _iterate(part, count)
    if found is None and not is_dense and size > MATRIX_UP_TO:
        found = _approximate(part, count)
    if found is None:
        every_value, every_vector = np.linalg.eigh(part.toarray())
        found = every_value[:count], every_vector[:, :count]
    return found


def _approximate(
    laplacian: Any, count: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "nodes count"]]:
    """Smooth vectors of a large connected part by LOBPCG, in time and memory linear in its edges.

    They are orthonormal and their values are Rayleigh quotients, but where eigenvalues lie close
    together, as in a large random graph, they need not be those of the smallest ones.
    """
    from scipy.sparse import diags
    from scipy.sparse.linalg import lobpcg

    nodes, degrees = laplacian.shape[0], laplacian.diagonal()
    constant = np.full((nodes, 1), nodes**-0.5)
    start = np.random.default_rng(0).standard_normal((nodes, count - 1 + SPARE))
    with warnings.catch_warnings():
        # it says so where it ends before the residual is small
        warnings.simplefilter("ignore", UserWarning)
        values, vectors = lobpcg(
            laplacian, start, M=diags(1.0 / degrees), Y=constant, largest=False, maxiter=STEPS,
            tol=RESIDUAL * degrees.mean(),
        )  # fmt: skip
    order = np.argsort(values, kind="stable")[: count - 1]
    return np.append(0.0, values[order]), np.append(constant, vectors[:, order], axis=1)


def _iterate(
    laplacian: Any, count: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "nodes count"]] | None:
    """Block Lanczos on the inverse of a connected part; None if it does not converge.

    A block and not a single vector, since call graphs and molecules have the same eigenvalue many
    times over and a single vector sees each of them once.
    """
    from scipy.sparse import identity
    from scipy.sparse.linalg import splu

    nodes = laplacian.shape[0]
    shifted = (laplacian + SHIFT * identity(nodes)).tocsc()
    invert = splu(shifted, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve

    def solve(block: Float[np.ndarray, "nodes width"]) -> Float[np.ndarray, "nodes width"]:
        found = invert(block)
        return found - found.mean(axis=0)

    # The constant vector, known already, is kept out: beside it all else would be rounding.
    wanted = count - 1
    block = np.random.default_rng(0).standard_normal((nodes, wanted + SPARE))
    allowed = TOLERANCE * max(1.0, laplacian.diagonal().max())
    for _ in range(ROUNDS):
        basis = _krylov(solve, block)
        product = laplacian @ basis
        values, mix = np.linalg.eigh(basis.T @ product)
        values, mix = values[: block.shape[1]], mix[:, : block.shape[1]]
        block = basis @ mix
        errors = np.linalg.norm(product @ mix - block * values, axis=0)
        if errors[:wanted].max() <= allowed:
            constant = np.full((nodes, 1), nodes**-0.5)
            return np.append(0.0, values[:wanted]), np.append(constant, block[:, :wanted], axis=1)
    return None


def _krylov(
    solve: Callable[[np.ndarray], np.ndarray], block: Float[np.ndarray, "nodes width"]
) -> Float[np.ndarray, "nodes basis"]:
    """An orthonormal basis of the block and its images, the constant vector left out."""
    basis = np.full((len(block), 1), len(block) ** -0.5)
    last = block
    for depth in range(DEPTH):
        last = _beside(basis, solve(last) if depth else last)
        if not last.shape[1]:
            # few different eigenvalues, as in a star: the basis holds all images already
            break
        basis = np.concatenate([basis, last], axis=1)
    return basis[:, 1:]


def _beside(
    basis: Float[np.ndarray, "nodes basis"], block: Float[np.ndarray, "nodes width"]
) -> Float[np.ndarray, "nodes found"]:
    """Orthonormal directions that the block adds to the basis; those of mere rounding are none."""
    least = ROUNDING * float(np.linalg.norm(block))
    # the second pass removes what rounding leaves of the first
    for _ in range(2):
        directions, lengths, _ = np.linalg.svd(
            block - basis @ (basis.T @ block), full_matrices=False
        )
        block = directions[:, lengths > least]
        least = 0.5
    return block

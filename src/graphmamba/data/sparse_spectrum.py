"""The smallest eigenpairs of one large Laplacian, without a dense matrix of its size."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

SHIFT = 1e-5
"""Added to the diagonal, so that the singular Laplacian can be inverted."""
SPARE = 4
"""Vectors iterated beside those asked for: the next eigenvalues limit the speed of convergence."""
DEPTH = 10
"""Blocks of a Krylov space before it is cut down to its best block."""
ROUNDS = 30
TOLERANCE = 1e-10
ROUNDING = 1e-13


def smallest_eigenpairs(
    edges: Int[np.ndarray, "2 edges"], nodes: int, count: int, dense_up_to: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "nodes count"]]:
    """The `count` smallest eigenvalues of Deg - Adj and their eigenvectors.

    Connected parts are solved by themselves: their constant vectors span the kernel exactly, where
    an iteration has trouble to tell one zero from another.

    Args:
        edges: Every edge once in both directions, no self-loops.
        nodes: Nodes of the graph, at least `count`.
        count: Eigenpairs wanted.
        dense_up_to: Nodes up to which a part is solved as a dense matrix.
    """
    from scipy.sparse import csr_matrix, diags
    from scipy.sparse.csgraph import connected_components

    adjacency = csr_matrix((np.ones(edges.shape[1]), tuple(edges)), shape=(nodes, nodes))
    laplacian = (diags(adjacency.sum(axis=1).A1) - adjacency).tocsr()
    parts, part = connected_components(adjacency, directed=False)
    by_part = np.split(np.argsort(part, kind="stable"), np.bincount(part).cumsum()[:-1])
    values, vectors = [], []
    for members in by_part[: max(count, 0)] if parts >= count else by_part:
        wanted = 1 if parts >= count else min(count, len(members))
        found, local = _solve_part(laplacian, members, wanted, dense_up_to)
        spread = np.zeros((nodes, wanted))
        spread[members] = local
        values.append(found)
        vectors.append(spread)
    order = np.argsort(np.concatenate(values), kind="stable")[:count]
    return np.concatenate(values)[order], np.concatenate(vectors, axis=1)[:, order]


def _solve_part(
    laplacian: Any, members: Int[np.ndarray, " members"], count: int, dense_up_to: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "members count"]]:
    size = len(members)
    if count == 1:
        return np.zeros(1), np.full((size, 1), size**-0.5)
    part = laplacian[members][:, members]
    # the iteration needs room for its basis
    is_dense = size <= max(dense_up_to, 2 * DEPTH * (count + SPARE))
    found = None if is_dense else _iterate(part, count)
    if found is None:
        every_value, every_vector = np.linalg.eigh(part.toarray())
        found = every_value[:count], every_vector[:, :count]
    return found


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

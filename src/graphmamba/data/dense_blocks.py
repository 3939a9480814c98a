"""Padded blocks whose shapes are known before a batch is: the graphs of a batch, sorted by size."""

from itertools import pairwise

import numpy as np
from jaxtyping import Int

Blocks = tuple[tuple[int, int], ...]
"""How many graphs have at most how many nodes, the largest graphs first."""

MULTIPLE = 16
"""Nodes of a block come in so many: kernels of attention want masks that are aligned so."""
MARGIN = 16
"""Nodes that a graph may have beyond what was seen at its place among the sorted ones."""
SHARES = 8, 4, 2
"""Blocks begin with the largest graph and behind these shares of all."""
WORTHWHILE = 0.85
"""Nodes of a block beside those of the one before it, at most; else they are one."""


def blocks_for(lengths: Int[np.ndarray, " places"]) -> Blocks:
    """Choose blocks.

    A block costs as many operations as it has nodes, squared, and one more launch.

    Args:
        lengths: Nodes of the graph at each place at most, descending.
    """
    places = len(lengths)
    begins = sorted({0, *(places // share for share in SHARES)})
    found: list[tuple[int, int]] = []
    for begin, end in pairwise([*begins, places]):
        graphs, nodes = end - begin, max(1, -(-int(lengths[begin]) // MULTIPLE)) * MULTIPLE
        if found and nodes > WORTHWHILE * found[-1][1]:
            before, nodes = found.pop()
            graphs += before
        found.append((graphs, nodes))
    return tuple(found)


def usual_lengths(
    seen: Int[np.ndarray, "batches places"], most: Int[np.ndarray, " places"]
) -> Int[np.ndarray, " places"]:
    """Tell what will do for nearly all batches.

    Args:
        seen: Nodes of the graphs of some batches, descending.
        most: Those of the largest graphs of all.
    """
    return np.minimum(seen.max(axis=0) + MARGIN, most)


def descending(nodes: Int[np.ndarray, " graphs"], places: int) -> Int[np.ndarray, " places"]:
    """Sort the sizes of graphs, empty places behind them."""
    ordered = np.zeros(max(places, len(nodes)), nodes.dtype)
    ordered[: len(nodes)] = np.sort(nodes)[::-1]
    return ordered


def do_fit(blocks: Blocks, nodes: Int[np.ndarray, " graphs"]) -> bool:
    """Tell whether graphs of so many nodes have room; there is no saying without blocks."""
    if not blocks:
        return True
    places = sum(graphs for graphs, _ in blocks)
    ordered, begin = descending(nodes, places), 0
    for graphs, most in blocks:
        if ordered[begin] > most:
            return False
        begin += graphs
    return len(ordered) == places

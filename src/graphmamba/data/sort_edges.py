"""Edges of each graph in the order of their targets, and an index of them by source."""

from jaxtyping import Int
from torch import Tensor

from graphmamba.data.tables import Boundaries, owner_of

Edges = Int[Tensor, " edges"]


def target_order(
    edge_index: Int[Tensor, "2 edges"], node_ptr: Boundaries, edge_ptr: Boundaries
) -> Edges | None:
    """Places of the edges, sorted by target within each graph; None where they are already.

    Edges of one target stay in the order in which they came.
    """
    target = edge_index[1] + node_ptr[owner_of(edge_ptr)]
    if not bool((target[1:] < target[:-1]).any()):
        return None
    return _argsort(target)


def source_order(
    edge_index: Int[Tensor, "2 edges"], node_ptr: Boundaries, edge_ptr: Boundaries
) -> Edges:
    """Edges sorted by source, counted from the first edge of their own graph."""
    owner = owner_of(edge_ptr)
    return _argsort(edge_index[0] + node_ptr[owner]) - edge_ptr[owner]


def _argsort(keys: Edges) -> Edges:
    # Numbers of all nodes fit into 32 bits wherever the nodes fit into memory; half the bytes
    # are sorted in half the time.
    return keys.int().argsort(stable=True)

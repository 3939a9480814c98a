"""Edges of each graph in the order of their targets, and an index of them by source."""

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.parallel import Span, for_each_span
from graphmamba.data.tables import Boundaries

Edges = Int[Tensor, " edges"]
TITLE = "Sorting edges"


def target_order(
    edge_index: Int[Tensor, "2 edges"], node_ptr: Boundaries, edge_ptr: Boundaries
) -> Edges | None:
    """Places of the edges, sorted by target within each graph; None where they are already.

    Edges of one target stay in the order in which they came.
    """
    falls: list[Span] = []

    def look(span: Span) -> None:
        target = _keys(edge_index[1], node_ptr, span)
        if bool((target[1:] < target[:-1]).any()):
            falls.append(span)

    for_each_span(edge_ptr, look, TITLE)
    if not falls:
        return None
    places = torch.arange(edge_index.shape[1])

    def sort(span: Span) -> None:
        order = _keys(edge_index[1], node_ptr, span).argsort(stable=True)
        torch.add(order, span.rows.start, out=places[span.rows])

    for_each_span(edge_ptr, sort, TITLE)
    return places


def source_order(
    edge_index: Int[Tensor, "2 edges"], node_ptr: Boundaries, edge_ptr: Boundaries
) -> Edges:
    """Edges sorted by source, counted from the first edge of their own graph."""
    places = torch.empty(edge_index.shape[1], dtype=torch.int64)

    def sort(span: Span) -> None:
        order = _keys(edge_index[0], node_ptr, span).argsort(stable=True)
        first = edge_ptr[span.graphs] - span.rows.start
        torch.sub(order, first[span.owner], out=places[span.rows])

    for_each_span(edge_ptr, sort, TITLE)
    return places


def _keys(ends: Edges, node_ptr: Boundaries, span: Span) -> Int[Tensor, " some_edges"]:
    """Ends of the edges of some graphs, counted over those graphs.

    Numbers of all nodes fit into 32 bits wherever the nodes fit into memory; half the bytes are
    sorted in half the time.
    """
    first = node_ptr[span.graphs]
    return (ends[span.rows] + (first - first[:1])[span.owner]).int()

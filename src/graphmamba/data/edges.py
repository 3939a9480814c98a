"""Sorting the edges of each graph by target, and an index of them by source."""

from collections.abc import Mapping

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from graphmamba.data.parallel import Span, for_each_span
from graphmamba.data.tables import Boundaries, Table

Edges = Int[Tensor, " edges"]
TITLE = "Sorting edges"


def target_order(
    edge_index: Int[Tensor, "2 edges"], node_ptr: Boundaries, edge_ptr: Boundaries
) -> Edges | None:
    """Permutation that sorts edges by target within each graph; None if they are sorted.

    The sort is stable.
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
    """Edges sorted by source, as indices within their graph."""
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


SOURCE_PTR, TARGET_PTR = "source_ptr", "target_ptr"
"""Columns of a batch with the first edge of each node, and the number of edges; see `EdgeLayout`.
Sources are those of the edges in `source_order`, targets those of the edges as they lie."""
CHUNK = 1 << 20  # edges that are looked at together: all of a large set would take memory


def edge_begins(
    tables: Mapping[str, Table], device: torch.device
) -> dict[str, Int[Tensor, " nodes"]]:
    """First edge of each node within its graph, by source and by target."""
    ptrs = {kind: torch.from_numpy(tables[kind].ptr).to(device) for kind in ("nodes", "edges")}
    sources, targets = tables["edges"].columns["edge_index"].values
    nodes = int(tables["nodes"].ptr[-1])
    owner = torch.searchsorted(ptrs["nodes"], torch.arange(nodes, device=device), right=True) - 1
    before = ptrs["edges"][owner]
    found = {}
    for name, ends in ((SOURCE_PTR, sources), (TARGET_PTR, targets)):
        counts = _count(ends, ptrs["nodes"], ptrs["edges"], nodes)
        found[name] = (counts.cumsum(0) - counts - before).int()
    return found


def _count(
    ends: Integer[Tensor, " edges"],
    node_ptr: Int[Tensor, " boundaries"],
    edge_ptr: Int[Tensor, " boundaries"],
    nodes: int,
) -> Int[Tensor, " nodes"]:
    """Edges of each node; `ends` are numbers of nodes in their graphs."""
    counts = torch.zeros(nodes, dtype=torch.int64, device=ends.device)
    for begin in range(0, ends.shape[0], CHUNK):
        part = ends[begin : begin + CHUNK].long()
        place = torch.arange(begin, begin + part.shape[0], device=ends.device)
        graph = torch.searchsorted(edge_ptr, place, right=True) - 1
        counts.scatter_add_(0, part + node_ptr[graph], torch.ones_like(part))
    return counts

"""Where the edges of each node begin in its graph: looked up once for all batches of a store."""

from collections.abc import Mapping

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from graphmamba.data.tables import Table

SOURCE_PTR, TARGET_PTR = "source_ptr", "target_ptr"
"""Columns of a batch with the first edge of each node, and the number of edges; see `EdgeLayout`.
Sources are those of the edges in `source_order`, targets those of the edges as they lie."""
CHUNK = 1 << 20
"""Edges that are looked at together: all of a large set would take memory."""


def edge_begins(
    tables: Mapping[str, Table], device: torch.device
) -> dict[str, Int[Tensor, " nodes"]]:
    """Count the edges of earlier nodes of its graph for each node, by source and by target."""
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

"""Where the edges of each node begin in its graph: looked up once for all batches of a store."""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.tables import Table

SOURCE_PTR, TARGET_PTR = "source_ptr", "target_ptr"
"""Columns of a batch with the first edge of each node, and the number of edges; see `EdgeLayout`.
Sources are those of the edges in `source_order`, targets those of the edges as they lie."""
CHUNK = 1 << 24
"""Edges that are looked at together: all of a large set would take memory."""


def edge_begins(
    tables: Mapping[str, Table], device: torch.device
) -> dict[str, Int[Tensor, " nodes"]]:
    """Count the edges of earlier nodes of its graph for each node, by source and by target."""
    node_ptr, edge_ptr = (
        torch.from_numpy(tables[kind].ptr).to(device) for kind in ("nodes", "edges")
    )
    nodes, edges = (int(tables[kind].ptr[-1]) for kind in ("nodes", "edges"))
    index = tables["edges"].columns["edge_index"].values
    counts = torch.zeros(2, nodes, dtype=torch.int64, device=device)
    for begin in range(0, edges, CHUNK):
        place = torch.arange(begin, min(begin + CHUNK, edges), device=device)
        before = node_ptr[torch.searchsorted(edge_ptr, place, right=True) - 1]
        number = index[:, begin : begin + CHUNK].long() + before
        counts.scatter_add_(1, number, torch.ones_like(number))
    owner = torch.searchsorted(node_ptr, torch.arange(nodes, device=device), right=True) - 1
    begins = (counts.cumsum(1) - counts - edge_ptr[owner]).int()
    return {SOURCE_PTR: begins[0].contiguous(), TARGET_PTR: begins[1].contiguous()}

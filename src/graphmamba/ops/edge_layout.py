"""The edges of each node in CSR form, computed once per batch and used by every layer."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.checks import check_range, check_rows


@dataclass(frozen=True)
class EdgeLayout:
    """Edges sorted by target and by source.

    `order[ptr[n] : ptr[n + 1]]` are the edges of node `n`, in their original order.
    """

    edge_index: Int[Tensor, "2 edges"]  # sources, targets
    target_ptr: Int[Tensor, " boundaries"]
    source_ptr: Int[Tensor, " boundaries"]
    source_order: Int[Tensor, " edges"]
    target_order: Int[Tensor, " edges"] | None = None  # None if edges are sorted by target


def lay_out_edges(
    edge_index: Int[Tensor, "2 edges"],
    nodes: int,
    source_order: Int[Tensor, " edges"] | None = None,
    *,
    check: bool | None = None,
) -> EdgeLayout:
    """Find the edges of each node, without a GPU synchronisation.

    Args:
        edge_index: Sources and targets.
        nodes: Number of nodes.
        source_order: Permutation that sorts the edges by source, as from `GraphStore.batch`; the
            edges themselves must then be sorted by target. If None, both orders are computed.
        check: Whether values are checked, which synchronises a GPU; None checks on the CPU only.
    """
    check_rows("edge_index", edge_index, (2, "edges"), is_integer=True)
    if source_order is not None:
        check_rows("source_order", source_order, edge_index.shape[1:], is_integer=True)
    is_checked = edge_index.device.type == "cpu" if check is None else check
    if is_checked and not torch.compiler.is_compiling():
        _check(edge_index, nodes, source_order)
    source, target = edge_index
    target_order = None
    if source_order is None:
        # int32 sorts in half the time of int64
        source_order = source.int().argsort(stable=True)
        target_order = target.int().argsort(stable=True)
        target = target[target_order]
    every = torch.arange(nodes + 1, device=edge_index.device, dtype=edge_index.dtype)
    return EdgeLayout(
        edge_index,
        target_ptr=torch.searchsorted(target.contiguous(), every, out_int32=True),
        source_ptr=torch.searchsorted(source[source_order], every, out_int32=True),
        source_order=source_order,
        target_order=target_order,
    )


def _check(
    edge_index: Int[Tensor, "2 edges"], nodes: int, source_order: Int[Tensor, " edges"] | None
) -> None:
    edges = edge_index.shape[1]
    check_range("edge_index", edge_index, nodes, "nodes")
    if source_order is None:
        return
    if bool((edge_index[1].diff() < 0).any()):
        raise UserError(
            "edge_index must be sorted by target where source_order is given, got other edges"
        )
    check_range("source_order", source_order, edges, "edges")
    repeated = (source_order.bincount(minlength=edges) > 1).nonzero()
    if len(repeated):
        raise UserError(f"source_order must hold each edge once, got {int(repeated[0])} again")
    if bool((edge_index[0][source_order].diff() < 0).any()):
        raise UserError("source_order must sort the edges by source, got one that does not")

"""Checks at the door of the gated sum; every message names the argument, the rule, the value."""

import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import EdgeLayout

_HALVES = torch.bfloat16, torch.float16
_REALS = {
    "reference": (torch.float32, *_HALVES, torch.float64),
    "cpu": (torch.float32, *_HALVES, torch.float64),
    "fused": (torch.float32, *_HALVES),
}


def check_rows(backend: str, nodes: Tensor, edges: Tensor, scale: Tensor | None) -> None:
    """Refuse rows of a type that the backend does not know, or that do not fit to one another."""
    if nodes.dtype not in _REALS[backend]:
        names = ", ".join(map(str, _REALS[backend]))
        raise UserError(
            f"nodes.dtype must be one of {names} for backend {backend!r}, got {nodes.dtype}"
        )
    if edges.dtype != nodes.dtype:
        raise UserError(f"edges.dtype must be that of nodes, {nodes.dtype}, got {edges.dtype}")
    if edges.dim() != 2 or nodes.dim() != 2 or nodes.shape[1] != 4 * edges.shape[1]:  # noqa: PLR2004
        raise UserError(
            "nodes must have four times the columns of edges, got shapes "
            f"{tuple(nodes.shape)} and {tuple(edges.shape)}"
        )
    if scale is not None and scale.shape != edges.shape[:1]:
        raise UserError(
            f"scale must have shape (edges {edges.shape[0]},), got {tuple(scale.shape)}"
        )
    for name, tensor in {"edges": edges, "scale": scale}.items():
        if tensor is not None and tensor.device != nodes.device:
            raise UserError(
                f"{name}.device must be that of nodes, {nodes.device}, got {tensor.device}"
            )


def check_layout(layout: EdgeLayout, nodes: Tensor, edges: Tensor) -> None:
    """Refuse the layout of other graphs than those of the rows."""
    if layout.edge_index.shape[1] != edges.shape[0]:
        raise UserError(
            f"edges must have {layout.edge_index.shape[1]} rows, one for each edge of the layout, "
            f"got {edges.shape[0]}"
        )
    if layout.target_ptr.shape[0] != nodes.shape[0] + 1:
        raise UserError(
            f"nodes must have {layout.target_ptr.shape[0] - 1} rows, one for each node of the "
            f"layout, got {nodes.shape[0]}"
        )
    if layout.edge_index.device != nodes.device:
        raise UserError(
            f"layout.device must be that of nodes, {nodes.device}, got {layout.edge_index.device}"
        )

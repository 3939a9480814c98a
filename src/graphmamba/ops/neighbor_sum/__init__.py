"""Sums over the neighbours of each node, without a row for each edge on the CPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.registration import add_gradients, add_operator
from graphmamba.ops.segments import sum_at_targets, take_sources


def sum_neighbors(
    x: Float[Tensor, "nodes channels"], layout: EdgeLayout
) -> Float[Tensor, "nodes channels"]:
    r"""Add up the rows of the nodes from which edges lead to each node.

    .. math:: y_i = \sum_{j \to i} x_j

    On the CPU one pass over the edges, forward and backward, takes the memory of the nodes alone;
    elsewhere rows are handed to the edges and summed. Either gives the same bits whenever it is
    called again.

    Args:
        x: Rows of the nodes.
        layout: Their edges.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return sum_at_targets(take_sources(x, layout), layout)
    source, target = layout.edge_index
    incoming = source, layout.target_ptr, layout.target_order
    return _SUM(x, *incoming, target, layout.source_ptr, layout.source_order)


def _sum(rows: Tensor, others: Tensor, ptr: Tensor, order: Tensor | None, *_: Any) -> Tensor:
    # Here and not at the top: Numba compiles where it runs.
    from graphmamba.ops.neighbor_sum.cpu import forward

    return forward(rows, others, ptr, order)


def _fake(rows: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(rows)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[1:])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the sum along the edges the other way round."""
    saved = ctx.saved_tensors
    return _SUM(grad, *saved[3:], *saved[:3]), None, None, None, None, None, None


_SUM = add_operator(
    "neighbor_sum(Tensor rows, Tensor others, Tensor ptr, Tensor? order, Tensor back_others, "
    "Tensor back_ptr, Tensor? back_order) -> Tensor",
    _sum,
    _fake,
)
add_gradients(_SUM, _differentiate, _set_up)

"""Sum over the neighbours of each node; on the CPU without a tensor of one row per edge."""

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
    r"""Sum the embeddings of the in-neighbours of each node; bitwise reproducible.

    .. math:: y_i = \sum_{j \to i} x_j
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return sum_at_targets(take_sources(x, layout), layout)
    source, target = layout.edge_index
    incoming = source, layout.target_ptr, layout.target_order
    outgoing = target, layout.source_ptr, layout.source_order
    return _SUM(x, *incoming, *outgoing)


def _sum(rows: Tensor, others: Tensor, ptr: Tensor, order: Tensor | None, *_: Any) -> Tensor:
    from graphmamba.ops.neighbor_sum.cpu import forward  # imports Numba, only where it is needed

    return forward(rows, others, ptr, order)


def _fake(rows: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(rows)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[1:])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Sum along the reversed edges."""
    saved = ctx.saved_tensors
    return _SUM(grad, *saved[3:], *saved[:3]), None, None, None, None, None, None


_SUM = add_operator(
    "neighbor_sum(Tensor rows, Tensor others, Tensor ptr, Tensor? order, Tensor back_others, "
    "Tensor back_ptr, Tensor? back_order) -> Tensor",
    _sum,
    _fake,
)
add_gradients(_SUM, _differentiate, _set_up)

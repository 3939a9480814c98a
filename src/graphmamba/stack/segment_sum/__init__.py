"""Sums over the rows that meet at the same place, always in the same order, without atomics."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.fusing import FUSED_TYPES
from graphmamba.operators import add_gradients, add_operator, as_dense
from graphmamba.scan.backends import available_backends


def sum_segments(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " rows"] | None = None,
) -> Float[Tensor, "places channels"]:
    """Add each row to its place; a place that nothing reaches is 0.

    On a GPU one kernel sums the rows of each place; elsewhere PyTorch's `index_add` takes them one
    after another. Either gives the same bits whenever it is called again.

    Args:
        rows: What is summed.
        index: Place of each row.
        ptr: The rows of place `p` are `ptr[p]` to `ptr[p + 1]` in the order.
        order: The rows sorted by place; None where they lie like that.
    """
    if rows.dtype in FUSED_TYPES and rows.is_cuda and "fused" in available_backends(rows.device):
        return _OPERATOR(rows, index, ptr, order)
    return rows.new_zeros(ptr.shape[0] - 1, rows.shape[1]).index_add(0, index, rows)


def _compute(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.stack.segment_sum.fused import forward

    with torch.cuda.device_of(rows):
        dense, _, bounds, places = as_dense((rows, index, ptr, order))
        return forward(dense, bounds, places)


def _fake(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.new_empty((ptr.shape[0] - 1, rows.shape[1]))


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(inputs[1])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (index,) = ctx.saved_tensors
    return grad.index_select(0, index), None, None, None


_OPERATOR = add_operator(
    "segment_sum_fused(Tensor rows, Tensor index, Tensor ptr, Tensor? order) -> Tensor",
    _compute,
    _fake,
)
add_gradients(_OPERATOR, _differentiate, _set_up)

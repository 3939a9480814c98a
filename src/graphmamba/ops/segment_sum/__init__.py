"""Sums over the rows that meet at the same place, and back: in one order, without atomics."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.backends import available_backends
from graphmamba.ops.fusing import FUSED_TYPES
from graphmamba.ops.operators import add_gradients, add_operator, as_dense


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
    if _is_fused(rows):
        return _SUM(rows, index, ptr, order)
    return rows.new_zeros(ptr.shape[0] - 1, rows.shape[1]).index_add(0, index, rows)


def take_rows(
    rows: Float[Tensor, "places channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " rows"] | None = None,
) -> Float[Tensor, "rows channels"]:
    """Hand the row of each place to all that belong there: `rows[index]`.

    The gradient of a place is the sum of theirs, found as `sum_segments` finds it.

    Args:
        rows: What is handed out.
        index: Place that each row of the result is taken from.
        ptr: As in `sum_segments`.
        order: As there.
    """
    if _is_fused(rows):
        return _TAKE(rows, index, ptr, order)
    # Not by brackets: their gradient sorts the places first.
    return rows.index_select(0, index)


def _is_fused(rows: Tensor) -> bool:
    is_known = rows.dtype in FUSED_TYPES and rows.is_cuda
    return is_known and "fused" in available_backends(rows.device)


def _sum(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.segment_sum.fused import forward

    with torch.cuda.device_of(rows):
        dense, _, bounds, places = as_dense((rows, index, ptr, order))
        return forward(dense, bounds, places)


def _fake_sum(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.new_empty((ptr.shape[0] - 1, rows.shape[1]))


def _take(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.index_select(0, index)


def _fake_take(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.new_empty((index.shape[0], rows.shape[1]))


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[1:])


def _differentiate_sum(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _TAKE(grad, *ctx.saved_tensors), None, None, None


def _differentiate_take(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _SUM(grad, *ctx.saved_tensors), None, None, None


ARGUMENTS = "(Tensor rows, Tensor index, Tensor ptr, Tensor? order) -> Tensor"
_SUM = add_operator(f"segment_sum_fused{ARGUMENTS}", _sum, _fake_sum)
_TAKE = add_operator(f"segment_take_fused{ARGUMENTS}", _take, _fake_take)
add_gradients(_SUM, _differentiate_sum, _set_up)
add_gradients(_TAKE, _differentiate_take, _set_up)

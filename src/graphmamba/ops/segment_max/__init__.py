"""The greatest of the rows that meet at the same place, channel by channel, without atomics."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.backends import available_backends
from graphmamba.ops.fusing import FUSED_TYPES
from graphmamba.ops.operators import add_gradients, add_operator, as_dense, refuse_twice


def max_segments(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
) -> Float[Tensor, "places channels"]:
    """Take the greatest entry of each channel among the rows of a place; 0 where it has none.

    Rows that share the greatest entry share its gradient evenly. On a GPU several programs walk
    the rows of a place, and each row's gradient is written once; all bits are the same whenever it
    is called again.

    Args:
        rows: What is compared.
        index: Place of each row, ascending.
        ptr: The rows of place `p` are `ptr[p]` to `ptr[p + 1]`.
    """
    if rows.dtype in FUSED_TYPES and rows.is_cuda and "fused" in available_backends(rows.device):
        top, _ = _FORWARD(rows, index, ptr)
        return top
    place = index[:, None].expand_as(rows)
    # Not zeros: a tie with one of them would take its share of the gradient.
    least = rows.new_full((ptr.shape[0] - 1, rows.shape[1]), float("-inf"))
    top = least.scatter_reduce(0, place, rows, "amax")
    return top.masked_fill((ptr.diff() == 0)[:, None], 0.0)


def _compute(rows: Tensor, index: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.segment_max.fused import forward

    with torch.cuda.device_of(rows):
        dense, bounds = as_dense((rows, ptr))
        return forward(dense, bounds)


def _compute_backward(
    grad: Tensor, rows: Tensor, index: Tensor, top: Tensor, count: Tensor
) -> Tensor:
    from graphmamba.ops.segment_max.fused import backward

    with torch.cuda.device_of(rows):
        dense, places = as_dense((rows, index))
        return backward(grad.contiguous(), dense, places, top, count)


def _fake(rows: Tensor, index: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    shape = ptr.shape[0] - 1, rows.shape[1]
    return rows.new_empty(shape), rows.new_empty(shape, dtype=torch.int32)


def _fake_backward(grad: Tensor, rows: Tensor, *_: Tensor) -> Tensor:  # noqa: ARG001
    return rows.new_empty(rows.shape)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows, index, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(rows, index, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return _BACKWARD(grad, *ctx.saved_tensors), None, None


_FORWARD = add_operator(
    "segment_max_fused(Tensor rows, Tensor index, Tensor ptr) -> (Tensor, Tensor)",
    _compute,
    _fake,
)
_BACKWARD = add_operator(
    "segment_max_fused_backward"
    "(Tensor grad, Tensor rows, Tensor index, Tensor top, Tensor count) -> Tensor",
    _compute_backward,
    _fake_backward,
)
add_gradients(_FORWARD, _differentiate, _set_up)
refuse_twice(_FORWARD, _BACKWARD)

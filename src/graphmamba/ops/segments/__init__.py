"""Sums, maxima and softmaxes over segments: the rows of a node or graph.

On a GPU a kernel adds the rows of a segment in a fixed order, without atomics; elsewhere PyTorch
adds them in turn. Both are bitwise reproducible. Segments are called places in shapes.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.backends import has_triton
from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.registration import (
    add_gradients,
    add_operator,
    launcher,
    reject_second_derivative,
)


def sum_segments(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " rows"] | None = None,
) -> Float[Tensor, "places channels"]:
    """Sum the rows of each segment; an empty segment is 0.

    Args:
        rows: Summands.
        index: Segment of each row.
        ptr: The rows of segment `s` are `order[ptr[s] : ptr[s + 1]]`.
        order: Rows sorted by segment; None if they are sorted already.
    """
    if has_triton(rows):
        return _SUM(rows, index, ptr, order)
    return rows.new_zeros(ptr.shape[0] - 1, rows.shape[1]).index_add(0, index, rows)


def take_rows(
    rows: Float[Tensor, "places channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " rows"] | None = None,
) -> Float[Tensor, "rows channels"]:
    """Gather `rows[index]`; the gradient is computed as in `sum_segments`.

    Args:
        rows: A row per segment.
        index: Segment of each row of the result.
        ptr: As in `sum_segments`.
        order: As in `sum_segments`.
    """
    if has_triton(rows):
        return _TAKE(rows, index, ptr, order)
    # Not rows[index], whose backward pass sorts the indices.
    return rows.index_select(0, index)


def max_segments(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
) -> Float[Tensor, "places channels"]:
    """Maximum of each channel over the rows of a segment; an empty segment is 0.

    Tied rows share the gradient evenly.

    Args:
        rows: Rows sorted by segment.
        index: Segment of each row, ascending.
        ptr: The rows of segment `s` are `ptr[s]` to `ptr[s + 1]`.
    """
    if has_triton(rows):
        return _MAX(rows, index, ptr)[0]
    place = index[:, None].expand_as(rows)
    # Not zeros, which would take part in ties.
    least = rows.new_full((ptr.shape[0] - 1, rows.shape[1]), float("-inf"))
    top = least.scatter_reduce(0, place, rows, "amax")
    return top.masked_fill((ptr.diff() == 0)[:, None], 0.0)


def take_sources(
    x: Float[Tensor, "nodes channels"], layout: EdgeLayout
) -> Float[Tensor, "edges channels"]:
    """Row of the source node of each edge."""
    return take_rows(x, layout.edge_index[0], layout.source_ptr, layout.source_order)


def take_targets(
    x: Float[Tensor, "nodes channels"], layout: EdgeLayout
) -> Float[Tensor, "edges channels"]:
    """Row of the target node of each edge."""
    return take_rows(x, layout.edge_index[1], layout.target_ptr, layout.target_order)


def sum_at_targets(
    rows: Float[Tensor, "edges channels"], layout: EdgeLayout
) -> Float[Tensor, "nodes channels"]:
    """Sum the rows of the incoming edges of each node."""
    return sum_segments(rows, layout.edge_index[1], layout.target_ptr, layout.target_order)


def sum_at(
    rows: Float[Tensor, "rows ..."], index: Int[Tensor, " rows"], size: int
) -> Float[Tensor, "places ..."]:
    """Add row `r` to segment `index[r]` of `size` segments."""
    return rows.new_zeros(size, *rows.shape[1:]).index_add(0, index, rows)


def softmax_at(
    scores: Float[Tensor, "rows ..."], index: Int[Tensor, " rows"], size: int
) -> Float[Tensor, "rows ..."]:
    """Softmax over the rows that share an index."""
    place = index.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
    top = scores.new_full((size, *scores.shape[1:]), float("-inf"))
    # The shift cancels in the quotient and needs no gradient.
    top = top.scatter_reduce(0, place, scores.detach(), "amax")
    weights = torch.exp(scores - top[index])
    return weights / sum_at(weights, index, size)[index]


def _fake_sum(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.new_empty((ptr.shape[0] - 1, rows.shape[1]))


def _take(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.index_select(0, index)


def _fake_take(rows: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:  # noqa: ARG001
    return rows.new_empty((index.shape[0], rows.shape[1]))


def _keep_places(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[1:])


def _sum_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _TAKE(grad, *ctx.saved_tensors), None, None, None


def _take_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _SUM(grad, *ctx.saved_tensors), None, None, None


def _fake_max(rows: Tensor, index: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    shape = ptr.shape[0] - 1, rows.shape[1]
    return rows.new_empty(shape), rows.new_empty(shape, dtype=torch.int32)


def _fake_max_backward(grad: Tensor, rows: Tensor, *_: Tensor) -> Tensor:  # noqa: ARG001
    return rows.new_empty(rows.shape)


def _keep_maxima(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows, index, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(rows, index, *output)


def _max_gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return _MAX_BACKWARD(grad, *ctx.saved_tensors), None, None


_PLACES = "(Tensor rows, Tensor index, Tensor ptr, Tensor? order) -> Tensor"
_SUM = add_operator(
    f"segment_sum_triton{_PLACES}", launcher("segments.triton", "segment_sum"), _fake_sum
)
_TAKE = add_operator(f"segment_take_triton{_PLACES}", _take, _fake_take)
_MAX = add_operator(
    "segment_max_triton(Tensor rows, Tensor index, Tensor ptr) -> (Tensor, Tensor)",
    launcher("segments.triton", "segment_max"),
    _fake_max,
)
_MAX_BACKWARD = add_operator(
    "segment_max_triton_backward"
    "(Tensor grad, Tensor rows, Tensor index, Tensor top, Tensor count) -> Tensor",
    launcher("segments.triton", "segment_max_backward"),
    _fake_max_backward,
)
add_gradients(_SUM, _sum_gradients, _keep_places)
add_gradients(_TAKE, _take_gradients, _keep_places)
add_gradients(_MAX, _max_gradients, _keep_maxima)
reject_second_derivative(_MAX, _MAX_BACKWARD)

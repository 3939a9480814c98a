"""Sums, maxima and softmaxes over the rows that meet at the same node or graph.

On a GPU one kernel takes the rows of each place in a fixed order, without atomics; elsewhere
PyTorch takes them one after another. Either gives the same bits whenever it is called again.
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
    """Add each row to its place; a place that nothing reaches is 0.

    Args:
        rows: What is summed.
        index: Place of each row.
        ptr: The rows of place `p` are `ptr[p]` to `ptr[p + 1]` in the order.
        order: The rows sorted by place; None where they lie like that.
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
    """Hand the row of each place to all that belong there: `rows[index]`.

    The gradient of a place is the sum of theirs, found as `sum_segments` finds it.

    Args:
        rows: What is handed out.
        index: Place that each row of the result is taken from.
        ptr: As in `sum_segments`.
        order: As in `sum_segments`.
    """
    if has_triton(rows):
        return _TAKE(rows, index, ptr, order)
    # Not by brackets: their gradient sorts the places first.
    return rows.index_select(0, index)


def max_segments(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    ptr: Int[Tensor, " boundaries"],
) -> Float[Tensor, "places channels"]:
    """Take the greatest entry of each channel among the rows of a place; 0 where it has none.

    Rows that share the greatest entry share its gradient evenly.

    Args:
        rows: What is compared.
        index: Place of each row, ascending.
        ptr: The rows of place `p` are `ptr[p]` to `ptr[p + 1]`.
    """
    if has_triton(rows):
        return _MAX(rows, index, ptr)[0]
    place = index[:, None].expand_as(rows)
    # Not zeros: a tie with one of them would take its share of the gradient.
    least = rows.new_full((ptr.shape[0] - 1, rows.shape[1]), float("-inf"))
    top = least.scatter_reduce(0, place, rows, "amax")
    return top.masked_fill((ptr.diff() == 0)[:, None], 0.0)


def take_sources(
    x: Float[Tensor, "nodes channels"], layout: EdgeLayout
) -> Float[Tensor, "edges channels"]:
    """Return for each edge the row of the node that it comes from."""
    return take_rows(x, layout.edge_index[0], layout.source_ptr, layout.source_order)


def take_targets(
    x: Float[Tensor, "nodes channels"], layout: EdgeLayout
) -> Float[Tensor, "edges channels"]:
    """Return for each edge the row of the node that it leads to."""
    return take_rows(x, layout.edge_index[1], layout.target_ptr, layout.target_order)


def sum_at_targets(
    rows: Float[Tensor, "edges channels"], layout: EdgeLayout
) -> Float[Tensor, "nodes channels"]:
    """Add up the rows of the edges that lead to each node."""
    return sum_segments(rows, layout.edge_index[1], layout.target_ptr, layout.target_order)


def sum_at(
    rows: Float[Tensor, "rows ..."], index: Int[Tensor, " rows"], size: int
) -> Float[Tensor, "places ..."]:
    """Add row `r` to place `index[r]` of `size` places; a place that nothing reaches is 0."""
    return rows.new_zeros(size, *rows.shape[1:]).index_add(0, index, rows)


def softmax_at(
    scores: Float[Tensor, "rows ..."], index: Int[Tensor, " rows"], size: int
) -> Float[Tensor, "rows ..."]:
    """Softmax over the rows that share an index."""
    place = index.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
    top = scores.new_full((size, *scores.shape[1:]), float("-inf"))
    # The shift cancels in the quotient, so that no gradient has to pass through it.
    top = top.scatter_reduce(0, place, scores.detach(), "amax")
    weights = torch.exp(scores - top[index])
    return weights / sum_at(weights, index, size)[index]


# The Triton forms as operators.


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

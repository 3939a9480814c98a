"""Sums and softmaxes over the rows that meet at the same node or graph."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.segment_sum import sum_segments, take_rows


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

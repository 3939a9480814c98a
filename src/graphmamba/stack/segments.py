"""Sums over the rows that meet at the same node or graph."""

from jaxtyping import Float, Int
from torch import Tensor


def sum_at(
    rows: Float[Tensor, "rows *columns"], index: Int[Tensor, " rows"], size: int
) -> Float[Tensor, "size *columns"]:
    """Add row `r` to place `index[r]` of `size` places; a place that nothing reaches is 0."""
    return rows.new_zeros(size, *rows.shape[1:]).index_add(0, index, rows)

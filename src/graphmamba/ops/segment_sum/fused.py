"""The sum over the rows of each place on a GPU."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.gated_sum.tiles import Tile, cut
from graphmamba.ops.gated_sum.walk_kernels import (
    add_to,
    edge_at,
    load_rows,
    place_program,
    rows_apart,
    rows_together,
    store_rows,
    sum_of_each,
)

TILE = Tile(edges=256, warps=8)
"""Graphs have more nodes than nodes have edges, and there is only one thing to sum."""


def forward(
    rows: Float[Tensor, "rows channels"],
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " rows"] | None,
) -> Float[Tensor, "places channels"]:
    """Sum the rows of each place."""
    (count, channels), places = rows.shape, ptr.shape[0] - 1
    out = rows.new_empty((places, channels))
    grid = cut(places, count, channels, TILE)
    if out.numel() > 0:
        segment_sum_kernel[(grid.programs,)](
            *(rows, ptr, ptr if order is None else order, out, places),
            STRIDE=rows.stride(0),
            HAS_ORDER=order is not None,
            **grid.constants,
        )
    return out


@no_type_check
@triton.jit
def walk(
    rows_ptr, order_ptr, place, end, rounds, c, STEP: tl.constexpr, R: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr, HAS_ORDER: tl.constexpr,
):  # fmt: skip
    """Return the rows of some places, added by row of the tile."""
    total = tl.zeros([R, C], tl.float32)
    for _ in range(rounds):
        inside = place < end
        row = edge_at(order_ptr, place, inside, HAS_ORDER)
        total += load_rows(rows_ptr, row, inside, c, STRIDE, CHANNELS)
        place += STEP
    return total


@no_type_check
@triton.jit(do_not_specialize=["places"])
def segment_sum_kernel(
    rows_ptr, bounds_ptr, order_ptr, out_ptr, places, CHANNELS: tl.constexpr, STRIDE: tl.constexpr,
    BLOCKS: tl.constexpr, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr, ROUNDS: tl.constexpr,
    HAS_ORDER: tl.constexpr,
):  # fmt: skip
    """Write the sums of T places."""
    R: tl.constexpr = T * K
    first, c, rounds, has_hub = place_program(bounds_ptr, places, T, K, C, BLOCKS, ROUNDS)
    _, place, end = rows_together(bounds_ptr, first, places, T, K)
    found = walk(rows_ptr, order_ptr, place, end, rounds, c, K, R, C, CHANNELS, STRIDE, HAS_ORDER)
    total = sum_of_each(found, T, K, C)
    if has_hub:
        for i in range(T):
            _, place, end, rounds = rows_apart(bounds_ptr, first + i, places, ROUNDS * K, R)
            if rounds > 0:
                found = walk(
                    rows_ptr, order_ptr, place, end, rounds, c, R, R, C, CHANNELS, STRIDE, HAS_ORDER
                )
                total = add_to(total, found, i, T)
    t = first + tl.arange(0, T)
    store_rows(out_ptr, t, t < places, c, total, CHANNELS, CHANNELS)

"""Triton kernels that sum rows, and take the greatest, over segments: the edges of a node, a graph.

For sums, a program has T segments and goes through their rows side by side, K = R / T of each at a
time. After a few rounds only hubs have rows left: these come one after another then, R rows at a
time. Sums never meet in memory: those of a segment are made by one program, in an order that
depends on nothing but the rows. Kernels of sums over edges elsewhere use the same functions.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def load_rows(ptr, row, mask, c, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load rows of some channels; 0 outside of the mask."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    return tl.load(ptr + at, mask=mask[:, None] & (c < CHANNELS)[None, :], other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def store_rows(ptr, row, mask, c, value, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Store what `load_rows` would load."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    tl.store(ptr + at, value, mask=mask[:, None] & (c < CHANNELS)[None, :])


@no_type_check
@triton.jit
def edge_at(order_ptr, place, mask, HAS_ORDER: tl.constexpr):
    """Return the edge at a place of the order."""
    if HAS_ORDER:
        return tl.load(order_ptr + place, mask=mask, other=0).to(tl.int32)
    return place


@no_type_check
@triton.jit
def rounds_of(bounds_ptr, first, nodes, T: tl.constexpr, K: tl.constexpr, ROUNDS: tl.constexpr):
    """Return the rounds in which nodes are walked side by side, and if they leave a hub."""
    t = first + tl.arange(0, T)
    low = tl.load(bounds_ptr + t, mask=t < nodes, other=0)
    high = tl.load(bounds_ptr + t + 1, mask=t < nodes, other=0)
    rounds = tl.cdiv(tl.max(high - low, axis=0), K)
    if T == 1:
        return rounds, False
    return tl.minimum(rounds, ROUNDS), rounds > ROUNDS


@no_type_check
@triton.jit
def place_program(
    bounds_ptr, nodes, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """Return the first node, the channels, the rounds side by side, and if they leave a hub."""
    first = (tl.program_id(0) // BLOCKS) * T
    c = (tl.program_id(0) % BLOCKS) * C + tl.arange(0, C)
    rounds, has_hub = rounds_of(bounds_ptr, first, nodes, T, K, ROUNDS)
    return first, c, rounds, has_hub


@no_type_check
@triton.jit
def rows_together(bounds_ptr, first, nodes, T: tl.constexpr, K: tl.constexpr):
    """Return node, place of the first edge and end of each row: K rows for each of T nodes."""
    row = tl.arange(0, T * K)
    node = first + row // K
    place = tl.load(bounds_ptr + node, mask=node < nodes, other=0) + row % K
    end = tl.load(bounds_ptr + node + 1, mask=node < nodes, other=0)
    return node, place, end


@no_type_check
@triton.jit
def rows_apart(bounds_ptr, node, nodes, SKIP: tl.constexpr, R: tl.constexpr):
    """Return the same for the edges of one node after the first ones, and the rounds they take."""
    row = tl.arange(0, R)
    low = tl.load(bounds_ptr + node, mask=node < nodes, other=0) + SKIP
    high = tl.load(bounds_ptr + node + 1, mask=node < nodes, other=0)
    same = tl.zeros_like(row)
    return same + node, low + row, same + high, tl.cdiv(tl.maximum(high - low, 0), R)


@no_type_check
@triton.jit
def sum_of_each(rows, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """Add the K rows of each node."""
    return tl.sum(tl.reshape(rows, [T, K, C]), axis=1)


@no_type_check
@triton.jit
def add_to(sums, rows, i, T: tl.constexpr):
    """Add all rows to the sum of the program's node `i`."""
    return tl.where(tl.arange(0, T)[:, None] == i, sums + tl.sum(rows, axis=0)[None, :], sums)


@no_type_check
@triton.jit
def greatest(best, count):
    """Return the greatest of all rows of a tile and how often it is there; NaN if one is NaN."""
    top = tl.max(best, axis=0)
    total = tl.sum(tl.where(best == top[None, :], count, 0), axis=0)
    has_nan = tl.max((best != best).to(tl.int32), axis=0) > 0  # noqa: PLR0124
    return tl.where(has_nan, float("nan"), top), total


@no_type_check
@triton.jit
def store_greatest(top_ptr, count_ptr, at, inside, top, count, IS_LAST: tl.constexpr):
    """Store both; at last, a place without rows gets 0."""
    if IS_LAST:
        is_empty = (count == 0) & (top == top)  # noqa: PLR0124
        top = tl.where(is_empty, 0.0, top)
    tl.store(top_ptr + at, top, mask=inside)
    tl.store(count_ptr + at, count, mask=inside)


@no_type_check
@triton.jit
def segment_max_kernel(
    rows_ptr, bounds_ptr, top_ptr, count_ptr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr,
    PARTS: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Find the greatest of one part of a place: every tile that is `part` modulo PARTS."""
    place, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    c = tl.program_id(1) * C + tl.arange(0, C)
    low, high = tl.load(bounds_ptr + place), tl.load(bounds_ptr + place + 1)
    best = tl.full([R, C], float("-inf"), tl.float32)
    count = tl.zeros([R, C], tl.int32)
    row = low.to(tl.int64) + part * R + tl.arange(0, R)
    for _ in range(tl.cdiv(high - low, PARTS * R).to(tl.int32)):
        inside = (row < high)[:, None] & (c < CHANNELS)[None, :]
        at = row[:, None] * STRIDE + c[None, :]
        own = tl.load(rows_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
        # A NaN is greater than all, and nothing is greater than it.
        is_new = (own > best) | (own != own)  # noqa: PLR0124
        count = tl.where(is_new, 1, count + (inside & (own == best)).to(tl.int32))
        best = tl.where(is_new, own, best)
        row += PARTS * R
    top, total = greatest(best, count)
    at = tl.program_id(0).to(tl.int64) * CHANNELS + c
    store_greatest(top_ptr, count_ptr, at, c < CHANNELS, top, total, PARTS == 1)


@no_type_check
@triton.jit
def segment_max_join_kernel(
    parts_ptr, counts_ptr, top_ptr, count_ptr,
    CHANNELS: tl.constexpr, PARTS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Find the greatest of all parts of a place."""
    place = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * C + tl.arange(0, C)
    part = place * PARTS + tl.arange(0, PARTS)
    at = part[:, None] * CHANNELS + c[None, :]
    inside = (c < CHANNELS)[None, :]
    best = tl.load(parts_ptr + at, mask=inside, other=float("-inf"))
    count = tl.load(counts_ptr + at, mask=inside, other=0)
    top, total = greatest(best, count)
    store_greatest(top_ptr, count_ptr, place * CHANNELS + c, c < CHANNELS, top, total, True)


@no_type_check
@triton.jit
def segment_max_bwd_kernel(
    grad_ptr, rows_ptr, index_ptr, top_ptr, count_ptr, out_ptr, rows,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Share the gradient of each place among the rows that are its greatest."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    inside = (row < rows)[:, None] & (c < CHANNELS)[None, :]
    place = tl.load(index_ptr + row, mask=row < rows, other=0).to(tl.int64)
    at = place[:, None] * CHANNELS + c[None, :]
    top = tl.load(top_ptr + at, mask=inside, other=0.0)
    count = tl.load(count_ptr + at, mask=inside, other=1)
    grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
    row = row.to(tl.int64)[:, None]
    own = tl.load(rows_ptr + row * STRIDE + c[None, :], mask=inside, other=0.0)
    # A factor and no choice: a gradient that is NaN stays so in all rows.
    # Rounded as PyTorch does it; a plain quotient is a little off on a GPU.
    part = tl.math.div_rn(grad, tl.maximum(count, 1).to(tl.float32))
    share = (own == top).to(tl.float32) * part
    tl.store(out_ptr + row * CHANNELS + c[None, :], share, mask=inside)


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

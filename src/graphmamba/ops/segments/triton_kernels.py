"""Triton kernels of sums and maxima over segments, such as the edges of a node.

A program sums T segments (nodes), K = R / T rows (edges) of each per iteration. After ROUNDS
iterations only hubs have rows left; these are then summed one by one, R rows per iteration. Each
sum is computed by one program in a fixed order, without atomics. Other operators on edges use the
same functions.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def load_rows(ptr, row, mask, c, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load the channels `c` of rows; 0 outside the mask."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    return tl.load(ptr + at, mask=mask[:, None] & (c < CHANNELS)[None, :], other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def store_rows(ptr, row, mask, c, value, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Store the channels `c` of rows."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    tl.store(ptr + at, value, mask=mask[:, None] & (c < CHANNELS)[None, :])


@no_type_check
@triton.jit
def edge_at(order_ptr, place, mask, HAS_ORDER: tl.constexpr):
    """Edge at a position of the order."""
    if HAS_ORDER:
        return tl.load(order_ptr + place, mask=mask, other=0).to(tl.int32)
    return place


@no_type_check
@triton.jit
def rounds_of(bounds_ptr, first, nodes, T: tl.constexpr, K: tl.constexpr, ROUNDS: tl.constexpr):
    """Return the number of iterations over T nodes at once, and whether hubs remain after them."""
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
    """Return the first node, the channels, and the result of `rounds_of`."""
    first = (tl.program_id(0) // BLOCKS) * T
    c = (tl.program_id(0) % BLOCKS) * C + tl.arange(0, C)
    rounds, has_hub = rounds_of(bounds_ptr, first, nodes, T, K, ROUNDS)
    return first, c, rounds, has_hub


@no_type_check
@triton.jit
def rows_together(bounds_ptr, first, nodes, T: tl.constexpr, K: tl.constexpr):
    """Return node, first position and end for each of T * K rows: K rows per node."""
    row = tl.arange(0, T * K)
    node = first + row // K
    place = tl.load(bounds_ptr + node, mask=node < nodes, other=0) + row % K
    end = tl.load(bounds_ptr + node + 1, mask=node < nodes, other=0)
    return node, place, end


@no_type_check
@triton.jit
def rows_apart(bounds_ptr, node, nodes, SKIP: tl.constexpr, R: tl.constexpr):
    """Return the same for R rows of one node after its first SKIP, and the iterations needed."""
    row = tl.arange(0, R)
    low = tl.load(bounds_ptr + node, mask=node < nodes, other=0) + SKIP
    high = tl.load(bounds_ptr + node + 1, mask=node < nodes, other=0)
    same = tl.zeros_like(row)
    return same + node, low + row, same + high, tl.cdiv(tl.maximum(high - low, 0), R)


@no_type_check
@triton.jit
def sum_of_each(rows, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """Sum the K rows of each node."""
    return tl.sum(tl.reshape(rows, [T, K, C]), axis=1)


@no_type_check
@triton.jit
def add_to(sums, rows, i, T: tl.constexpr):
    """Add all rows to the sum of node `i` of the program."""
    return tl.where(tl.arange(0, T)[:, None] == i, sums + tl.sum(rows, axis=0)[None, :], sums)


@no_type_check
@triton.jit
def greatest(best, count):
    """Return the maximum over the rows of a tile, NaN if one is NaN, and its number of ties."""
    top = tl.max(best, axis=0)
    total = tl.sum(tl.where(best == top[None, :], count, 0), axis=0)
    has_nan = tl.max((best != best).to(tl.int32), axis=0) > 0  # noqa: PLR0124
    return tl.where(has_nan, float("nan"), top), total


@no_type_check
@triton.jit
def store_greatest(top_ptr, count_ptr, at, inside, top, count, IS_LAST: tl.constexpr):
    """Store maximum and count; IS_LAST sets empty segments to 0."""
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
    """Maximum over one part of a segment: every PARTS-th tile."""
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
        # NaN counts as the largest value.
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
    """Combine the maxima of the parts of a segment."""
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
    """Divide the gradient of each maximum among the tied rows."""
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
    # div_rn rounds as PyTorch does; `/` is approximate on a GPU. A factor instead of `where` keeps
    # a NaN gradient in all rows.
    part = tl.math.div_rn(grad, tl.maximum(count, 1).to(tl.float32))
    share = (own == top).to(tl.float32) * part
    tl.store(out_ptr + row * CHANNELS + c[None, :], share, mask=inside)


@no_type_check
@triton.jit
def walk(
    rows_ptr, order_ptr, place, end, rounds, c, STEP: tl.constexpr, R: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr, HAS_ORDER: tl.constexpr,
):  # fmt: skip
    """Sum `rounds` rows, STEP positions apart, for each row of the tile."""
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
    """Write the sums of T segments."""
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

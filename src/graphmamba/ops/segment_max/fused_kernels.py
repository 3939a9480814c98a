"""Triton kernels of the greatest row of each place; tiles hold R rows and C channels."""

from typing import no_type_check

import triton
import triton.language as tl


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

"""Triton kernels of the sum over categories; tiles hold T rows, C channels and V vectors."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def category_sum_fwd_kernel(
    columns_ptr, offsets_ptr, weight_ptr, out_ptr, rows, entries,
    COLUMNS: tl.constexpr, CHANNELS: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add up the vectors of T rows; a vector that is not there is NaN."""
    row = tl.program_id(0) * T + tl.arange(0, T)
    channel = tl.program_id(1) * C + tl.arange(0, C)
    inside = (row < rows)[:, None] & (channel < CHANNELS)[None, :]
    first = row.to(tl.int64) * COLUMNS
    total = tl.zeros([T, C], tl.float32)
    for column in tl.static_range(COLUMNS):
        number = tl.load(columns_ptr + first + column, mask=row < rows, other=0).to(tl.int64)
        entry = number + tl.load(offsets_ptr + column)
        is_there = (entry >= 0) & (entry < entries)
        at = entry[:, None] * CHANNELS + channel[None, :]
        total += tl.load(weight_ptr + at, mask=inside & is_there[:, None], other=float("nan"))
    at = row.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(out_ptr + at, total, mask=inside)


@no_type_check
@triton.jit
def category_sum_bwd_kernel(
    grad_ptr, columns_ptr, offsets_ptr, sums_ptr, rows, entries, tiles,
    COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
    T: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add up the gradients of all rows of a part that name each of V vectors.

    How often a row names a vector is a small whole number, so that the sum is a product of
    matrices, which loses nothing to the narrow type of its first factor. The second comes in two
    parts of which each fits into that type.
    """
    part = tl.program_id(0)
    entry = tl.program_id(1) * V + tl.arange(0, V)
    channel = tl.program_id(2) * C + tl.arange(0, C)
    total = tl.zeros([V, C], tl.float32)
    for tile in range(tiles):
        row = (part * tiles + tile) * T + tl.arange(0, T)
        is_row = row < rows
        times = tl.zeros([V, T], tl.float32)
        for column in tl.static_range(COLUMNS):
            first = row.to(tl.int64) * COLUMNS
            number = tl.load(columns_ptr + first + column, mask=is_row, other=-1).to(tl.int64)
            named = tl.where(is_row, number + tl.load(offsets_ptr + column), -1).to(tl.int32)
            # Two instructions an entry, where adding the answer takes three.
            times = tl.where(entry[:, None] == named[None, :], times + 1.0, times)
        at = row.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
        inside = is_row[:, None] & (channel < CHANNELS)[None, :]
        grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
        high = (grad.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        total = tl.dot(times, high, total, input_precision="tf32")
        total = tl.dot(times, grad - high, total, input_precision="tf32")
    at = (part * entries + entry).to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    inside = (entry < entries)[:, None] & (channel < CHANNELS)[None, :]
    tl.store(sums_ptr + at, total, mask=inside)

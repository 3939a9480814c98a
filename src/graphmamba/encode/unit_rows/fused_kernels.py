"""Triton kernels that scale rows to length 1; tiles hold R rows and all C channels.

Comparisons are written so that what is no number stays so, as PyTorch has it.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.encode.linear.fused_kernels import load_tile

SHORTEST = tl.constexpr(1e-12)
"""The length that shorter rows are divided by."""


@no_type_check
@triton.jit
def scaled(x, HAS_RELU: tl.constexpr):
    """Return the rows of length 1, what they were multiplied by, and which were too short."""
    r = tl.where(x <= 0.0, 0.0, x) if HAS_RELU else x
    length = tl.sqrt_rn(tl.sum(r * r, axis=1))
    is_short = length < SHORTEST
    scale = tl.math.div_rn(1.0, tl.where(is_short, SHORTEST, length))
    return r * scale[:, None], scale, is_short


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def unit_rows_fwd_kernel(
    x_ptr, y_ptr, rows, CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, R: tl.constexpr,
    C: tl.constexpr, HAS_RELU: tl.constexpr,
):  # fmt: skip
    """Divide R rows by their lengths."""
    row, c = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    x = load_tile(x_ptr, row, c, rows, X_STRIDE, CHANNELS).to(tl.float32)
    y, _, _ = scaled(x, HAS_RELU)
    at = row.to(tl.int64)[:, None] * CHANNELS + c[None, :]
    tl.store(y_ptr + at, y, mask=(row < rows)[:, None] & (c < CHANNELS)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def unit_rows_bwd_kernel(
    grad_ptr, x_ptr, out_ptr, rows, CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    X_STRIDE: tl.constexpr, R: tl.constexpr, C: tl.constexpr, HAS_RELU: tl.constexpr,
):  # fmt: skip
    """Take from the gradient what points along the row, then scale it as the row was."""
    row, c = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    grad = load_tile(grad_ptr, row, c, rows, GRAD_STRIDE, CHANNELS).to(tl.float32)
    x = load_tile(x_ptr, row, c, rows, X_STRIDE, CHANNELS).to(tl.float32)
    y, scale, is_short = scaled(x, HAS_RELU)
    # The divisor of a row that is too short is a number, and has no gradient.
    along = tl.where(is_short, 0.0, tl.sum(grad * y, axis=1))
    found = (grad - y * along[:, None]) * scale[:, None]
    if HAS_RELU:
        found = tl.where(x <= 0.0, 0.0, found)
    at = row.to(tl.int64)[:, None] * CHANNELS + c[None, :]
    tl.store(out_ptr + at, found, mask=(row < rows)[:, None] & (c < CHANNELS)[None, :])

"""Triton kernels of a linear map's gradients; rows are many, channels few.

A program walks `tiles` tiles of R rows below one another and leaves one line: its share of the
gradients of weight and bias. A second kernel adds the lines up, always in the same order.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def load_tile(ptr, row, column, rows, STRIDE: tl.constexpr, COLUMNS: tl.constexpr):
    """Load rows; 0 outside."""
    at = row.to(tl.int64)[:, None] * STRIDE + column[None, :]
    return tl.load(ptr + at, mask=(row < rows)[:, None] & (column < COLUMNS)[None, :], other=0.0)


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def narrow_fwd_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows, OUT: tl.constexpr, IN: tl.constexpr,
    X_STRIDE: tl.constexpr, R: tl.constexpr, OB: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Map R rows of few columns, in full precision: there is little to multiply."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    out = tl.program_id(1) * OB + tl.arange(0, OB)
    y = tl.zeros([R, OB], tl.float32)
    if HAS_BIAS:
        y += tl.load(bias_ptr + out, mask=out < OUT, other=0.0)[None, :]
    for i in tl.static_range(IN):
        x = tl.load(x_ptr + row * X_STRIDE + i, mask=row < rows, other=0.0)
        weight = tl.load(weight_ptr + out * IN + i, mask=out < OUT, other=0.0)
        y += x[:, None] * weight[None, :]
    at = row[:, None] * OUT + out[None, :]
    tl.store(y_ptr + at, y, mask=(row < rows)[:, None] & (out < OUT)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles"])
def weight_grad_kernel(
    grad_ptr, x_ptr, lines_ptr, rows, tiles, OUT: tl.constexpr, IN: tl.constexpr,
    GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr, LINE: tl.constexpr, R: tl.constexpr,
    OB: tl.constexpr, IB: tl.constexpr, STAGES: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Write a line's block [OB, IB] of the weight's gradient, and of the bias's."""
    program = tl.program_id(0).to(tl.int64)
    out = tl.program_id(1) * OB + tl.arange(0, OB)
    inward = tl.program_id(2) * IB + tl.arange(0, IB)
    total, sums = tl.zeros([OB, IB], tl.float32), tl.zeros([OB], tl.float32)
    first = program * tiles * R
    for tile in tl.range(0, tiles, num_stages=STAGES):
        row = first + tile * R + tl.arange(0, R)
        grad = load_tile(grad_ptr, row, out, rows, GRAD_STRIDE, OUT)
        x = load_tile(x_ptr, row, inward, rows, X_STRIDE, IN)
        total = tl.dot(tl.trans(grad), x, total, input_precision="tf32")
        if HAS_BIAS:
            sums += tl.sum(grad, axis=0)
    lines_ptr += program * LINE
    inside = (out < OUT)[:, None] & (inward < IN)[None, :]
    tl.store(lines_ptr + out[:, None] * IN + inward[None, :], total, mask=inside)
    if HAS_BIAS:
        # Blocks beside one another have the same sums; the first writes them.
        tl.store(lines_ptr + OUT * IN + out, sums, mask=out + tl.program_id(2) * OUT < OUT)


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles"])
def column_sums_kernel(
    grad_ptr, lines_ptr, rows, tiles, OUT: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    R: tl.constexpr, OB: tl.constexpr,
):  # fmt: skip
    """Write a line of column sums."""
    program = tl.program_id(0).to(tl.int64)
    out = tl.program_id(1) * OB + tl.arange(0, OB)
    sums = tl.zeros([R, OB], tl.float32)
    for tile in range(tiles):
        row = (program * tiles + tile) * R + tl.arange(0, R)
        sums += load_tile(grad_ptr, row, out, rows, GRAD_STRIDE, OUT)
    tl.store(lines_ptr + program * OUT + out, tl.sum(sums, axis=0), mask=out < OUT)

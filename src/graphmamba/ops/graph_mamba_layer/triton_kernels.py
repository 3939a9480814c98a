"""Triton kernels between the operators of a layer: linear maps, activation and dropout.

Rows are many, channels few. A program of a weight's gradient goes through `tiles` tiles of R rows
and leaves one row of partial sums, which are added up later, always in the same order.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.triton_kernels import (
    activate,
    activation_slope,
    drop,
    load_keys,
    load_tile,
    store_tile,
)


@no_type_check
@triton.jit
def load_block(ptr, row, column, rows, STRIDE: tl.constexpr, COLUMNS: tl.constexpr):
    """Load rows; 0 outside."""
    at = row.to(tl.int64)[:, None] * STRIDE + column[None, :]
    return tl.load(ptr + at, mask=(row < rows)[:, None] & (column < COLUMNS)[None, :], other=0.0)


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles"])
def weight_grad_kernel(
    grad_ptr, x_ptr, parts_ptr, rows, tiles, OUT: tl.constexpr, IN: tl.constexpr,
    GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr, PART: tl.constexpr, R: tl.constexpr,
    OB: tl.constexpr, IB: tl.constexpr, STAGES: tl.constexpr, HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a program's block [OB, IB] of the weight's gradient, and of the bias's."""
    program = tl.program_id(0).to(tl.int64)
    out = tl.program_id(1) * OB + tl.arange(0, OB)
    inward = tl.program_id(2) * IB + tl.arange(0, IB)
    total, sums = tl.zeros([OB, IB], tl.float32), tl.zeros([OB], tl.float32)
    first = program * tiles * R
    for tile in tl.range(0, tiles, num_stages=STAGES):
        row = first + tile * R + tl.arange(0, R)
        grad = load_block(grad_ptr, row, out, rows, GRAD_STRIDE, OUT)
        x = load_block(x_ptr, row, inward, rows, X_STRIDE, IN)
        total = tl.dot(tl.trans(grad), x, total, input_precision=PRECISION)
        if HAS_BIAS:
            sums += tl.sum(grad.to(tl.float32), axis=0)
    parts_ptr += program * PART
    inside = (out < OUT)[:, None] & (inward < IN)[None, :]
    tl.store(parts_ptr + out[:, None] * IN + inward[None, :], total, mask=inside)
    if HAS_BIAS:
        # Blocks beside one another have the same sums; the first writes them.
        tl.store(parts_ptr + OUT * IN + out, sums, mask=out + tl.program_id(2) * OUT < OUT)


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def narrow_product_kernel(
    x_ptr, weight_ptr, y_ptr, rows, OUT: tl.constexpr, IN: tl.constexpr, X_STRIDE: tl.constexpr,
    R: tl.constexpr, OB: tl.constexpr,
):  # fmt: skip
    """Map R rows of few columns, in full precision: there is little to multiply."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    out = tl.program_id(1) * OB + tl.arange(0, OB)
    y = tl.zeros([R, OB], tl.float32)
    for i in tl.static_range(IN):
        x = tl.load(x_ptr + row * X_STRIDE + i, mask=row < rows, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + out * IN + i, mask=out < OUT, other=0.0).to(tl.float32)
        y += x[:, None] * weight[None, :]
    at = row[:, None] * OUT + out[None, :]
    tl.store(y_ptr + at, y, mask=(row < rows)[:, None] & (out < OUT)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def narrow_rows_grad_kernel(
    grad_ptr, weight_ptr, b_ptr, c_ptr, out_ptr, rows, OUT: tl.constexpr, IN: tl.constexpr,
    WIDTH: tl.constexpr, R: tl.constexpr, OB: tl.constexpr, WB: tl.constexpr,
):  # fmt: skip
    """Write grad W, of few columns, and behind it the rows b and c."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    out, exists = tl.arange(0, OB), row < rows
    LINE: tl.constexpr = IN + 2 * WIDTH
    inside = exists[:, None] & (out < OUT)[None, :]
    grad = tl.load(grad_ptr + row[:, None] * OUT + out[None, :], mask=inside, other=0.0)
    grad = grad.to(tl.float32)
    for i in tl.static_range(IN):
        weight = tl.load(weight_ptr + out * IN + i, mask=out < OUT, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * LINE + i, tl.sum(grad * weight[None, :], axis=1), mask=exists)
    n = tl.arange(0, WB)
    mask, at = exists[:, None] & (n < WIDTH)[None, :], row[:, None] * WIDTH + n[None, :]
    place = out_ptr + row[:, None] * LINE + IN + n[None, :]
    tl.store(place, tl.load(b_ptr + at, mask=mask, other=0.0), mask=mask)
    tl.store(place + WIDTH, tl.load(c_ptr + at, mask=mask, other=0.0), mask=mask)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def activate_drop_kernel(
    x_ptr, grad_ptr, seed_ptr, out_ptr, rows, site, CHANNELS: tl.constexpr, T: tl.constexpr,
    C: tl.constexpr, IS_BACKWARD: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """Write one tile of drop(activation(x)), or of its gradient."""
    first = tl.program_id(0) * T
    row, c = first + tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    value = load_tile(x_ptr, first, c, rows, T, CHANNELS, CHANNELS).to(tl.float32)
    if IS_BACKWARD:
        grad = load_tile(grad_ptr, first, c, rows, T, CHANNELS, CHANNELS).to(tl.float32)
        value = grad * activation_slope(value, ACTIVATION)
    else:
        value = activate(value, ACTIVATION)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    value = drop(value, keys, row, c, THRESHOLD, SCALE, CHANNELS)
    store_tile(out_ptr, first, c, rows, value, T, CHANNELS)

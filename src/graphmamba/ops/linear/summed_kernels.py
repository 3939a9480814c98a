"""Triton kernels that multiply the rows of a gradient, and sum what a norm wants to know of it.

They are those of `product_kernels`; what they write is the gradient of a norm's output, and each
program leaves one line more: its share of the gradients of that norm's weight and bias.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.backward_kernels import load_norm, slope
from graphmamba.ops.batch_norm.tile_kernels import load_keys, real_rows
from graphmamba.ops.linear.fused_kernels import load_tile
from graphmamba.ops.linear.product_kernels import load_matrix, multiply_pieces, write_part


@no_type_check
@triton.jit
def slope_of(
    y, normed, norm, keys, row, n, real, N: tl.constexpr, ACTIVATION: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Return the normalised rows and the gradient before the activation, of a product's rows."""
    return slope(
        y, normed, normed, norm, keys, keys, row, n, real, N, False, ACTIVATION, 0, 1.0, THRESHOLD,
        SCALE,
    )  # fmt: skip


@no_type_check
@triton.jit
def write_sums(parts_ptr, line, n, d_weight, d_bias, N: tl.constexpr):
    """Write channels of a line."""
    at = parts_ptr + line * 2 * N + n
    tl.store(at, tl.sum(d_weight, axis=0), mask=n < N)
    tl.store(at + N, tl.sum(d_bias, axis=0), mask=n < N)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def held_summed_kernel(
    x_ptr, matrix_ptr, other_ptr, y_ptr, normed_ptr, kept_ptr, weight_ptr, bias_ptr, seed_ptr,
    count_ptr, parts_ptr, rows, site, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr,
    AT_N: tl.constexpr, X_STRIDE: tl.constexpr, OTHER_STRIDE: tl.constexpr,
    NORMED_STRIDE: tl.constexpr, R: tl.constexpr, KA: tl.constexpr, KB: tl.constexpr,
    NA: tl.constexpr, HAS_OTHER: tl.constexpr, HAS_COUNT: tl.constexpr, ACTIVATION: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Hold all lines of the matrix for some tiles of R rows, as `held_product_kernel` does."""
    across: tl.constexpr = tl.cdiv(N, NA)
    program, programs = tl.program_id(0) // across, tl.num_programs(0) // across
    n = tl.program_id(0) % across * NA + tl.arange(0, NA)
    a, b = tl.arange(0, KA), KA + tl.arange(0, KB)
    row = program * R + tl.arange(0, R)
    xa = load_tile(x_ptr, row, a, rows, X_STRIDE, K)
    xb = load_tile(x_ptr, row, b, rows, X_STRIDE, K)
    normed = load_tile(normed_ptr, row, n, rows, NORMED_STRIDE, N)
    other = row
    if HAS_OTHER:
        other = load_tile(other_ptr, row, n, rows, OTHER_STRIDE, N)
    ma = load_matrix(matrix_ptr, a, n, K, N, AT_K, AT_N)
    mb = load_matrix(matrix_ptr, b, n, K, N, AT_K, AT_N)
    norm = load_norm(kept_ptr, weight_ptr, bias_ptr, n, N)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    real = real_rows(count_ptr, rows, HAS_COUNT)
    d_weight, d_bias = tl.zeros([R, NA], tl.float32), tl.zeros([R, NA], tl.float32)
    for _ in range(tl.cdiv(tl.cdiv(rows, R) - program, programs)):
        following = row + programs * R
        next_a = load_tile(x_ptr, following, a, rows, X_STRIDE, K)
        next_b = load_tile(x_ptr, following, b, rows, X_STRIDE, K)
        y = tl.dot(xa, ma, input_precision="tf32")
        y = tl.dot(xb, mb, y, input_precision="tf32")
        if HAS_OTHER:
            y += other
        write_part(y, row, x_ptr, y_ptr, row, n, rows, N, False, False, False, False)
        hat, dz = slope_of(y, normed, norm, keys, row, n, real, N, ACTIVATION, THRESHOLD, SCALE)
        d_weight += dz * hat
        d_bias += dz
        if HAS_OTHER:
            other = load_tile(other_ptr, following, n, rows, OTHER_STRIDE, N)
        normed = load_tile(normed_ptr, following, n, rows, NORMED_STRIDE, N)
        row, xa, xb = following, next_a, next_b
    write_sums(parts_ptr, program, n, d_weight, d_bias, N)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def pieces_summed_kernel(
    x_ptr, matrix_ptr, other_ptr, y_ptr, normed_ptr, kept_ptr, weight_ptr, bias_ptr, seed_ptr,
    count_ptr, parts_ptr, rows, site, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr,
    AT_N: tl.constexpr, X_STRIDE: tl.constexpr, OTHER_STRIDE: tl.constexpr,
    NORMED_STRIDE: tl.constexpr, R: tl.constexpr, KB: tl.constexpr, NA: tl.constexpr,
    NB: tl.constexpr, STAGES: tl.constexpr, HAS_OTHER: tl.constexpr, HAS_COUNT: tl.constexpr,
    ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Take some lines of the matrix at a time for one tile, as `pieces_product_kernel` does."""
    across: tl.constexpr = tl.cdiv(N, NA + NB)
    block, tile = tl.program_id(0) % across * (NA + NB), tl.program_id(0) // across
    n = block + tl.arange(0, NA)
    row = tile * R + tl.arange(0, R)
    m = n
    if NB > 0:
        m = block + NA + tl.arange(0, NB)
    ya, yb = multiply_pieces(
        x_ptr, matrix_ptr, row, n, m, rows, K, N, AT_K, AT_N, X_STRIDE, R, KB, NA, NB, STAGES
    )
    keys = load_keys(seed_ptr, site, THRESHOLD)
    real = real_rows(count_ptr, rows, HAS_COUNT)
    finish_part(
        ya, row, n, real, keys, other_ptr, y_ptr, normed_ptr, kept_ptr, weight_ptr, bias_ptr,
        parts_ptr, tile, rows, N, OTHER_STRIDE, NORMED_STRIDE, HAS_OTHER, ACTIVATION, THRESHOLD,
        SCALE,
    )  # fmt: skip
    if NB > 0:
        finish_part(
            yb, row, m, real, keys, other_ptr, y_ptr, normed_ptr, kept_ptr, weight_ptr, bias_ptr,
            parts_ptr, tile, rows, N, OTHER_STRIDE, NORMED_STRIDE, HAS_OTHER, ACTIVATION,
            THRESHOLD, SCALE,
        )  # fmt: skip


@no_type_check
@triton.jit
def finish_part(
    y, row, n, real, keys, other_ptr, y_ptr, normed_ptr, kept_ptr, weight_ptr, bias_ptr, parts_ptr,
    tile, rows, N: tl.constexpr, OTHER_STRIDE: tl.constexpr, NORMED_STRIDE: tl.constexpr,
    HAS_OTHER: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """Write channels of the product plus others, and of the line of sums."""
    normed = load_tile(normed_ptr, row, n, rows, NORMED_STRIDE, N)
    if HAS_OTHER:
        y += load_tile(other_ptr, row, n, rows, OTHER_STRIDE, N)
    write_part(y, row, y_ptr, y_ptr, row, n, rows, N, False, False, False, False)
    norm = load_norm(kept_ptr, weight_ptr, bias_ptr, n, N)
    hat, dz = slope_of(y, normed, norm, keys, row, n, real, N, ACTIVATION, THRESHOLD, SCALE)
    write_sums(parts_ptr, tile, n, dz * hat, dz, N)

"""Triton kernels that multiply many rows by a small matrix.

A program writes a block of channels of the product. Blocks of the same rows come one after the
other: the cache still has the rows. The matrix is a weight or a weight turned round: its strides
say which.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.encode.linear.fused_kernels import load_tile


@no_type_check
@triton.jit
def load_matrix(ptr, k, n, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr, AT_N: tl.constexpr):  # fmt: skip  # noqa: E501
    """Load a block of the matrix; 0 outside."""
    at = k[:, None] * AT_K + n[None, :] * AT_N
    return tl.load(ptr + at, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)


@no_type_check
@triton.jit
def load_kept(
    x_ptr, kept_ptr, row, k, rows, K: tl.constexpr, X_STRIDE: tl.constexpr,
    KEPT_STRIDE: tl.constexpr, HAS_KEPT: tl.constexpr,
):  # fmt: skip
    """Load rows, 0 where the output that was kept is none: the gradient before a ReLU."""
    x = load_tile(x_ptr, row, k, rows, X_STRIDE, K)
    if HAS_KEPT:
        x = tl.where(load_tile(kept_ptr, row, k, rows, KEPT_STRIDE, K) > 0, x, 0.0)
    return x


@no_type_check
@triton.jit
def write_part(
    y, more, bias_ptr, y_ptr, row, n, rows, N: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_MORE: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Write channels of the product, and what belongs to it."""
    if HAS_BIAS:
        y += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    if HAS_MORE:
        y += more
    if IS_RELU:
        y = tl.maximum(y, 0.0)
    at = row.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(y_ptr + at, y, mask=(row < rows)[:, None] & (n < N)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def held_product_kernel(
    x_ptr, kept_ptr, matrix_ptr, bias_ptr, more_ptr, y_ptr, rows, K: tl.constexpr,
    N: tl.constexpr, AT_K: tl.constexpr, AT_N: tl.constexpr, X_STRIDE: tl.constexpr,
    KEPT_STRIDE: tl.constexpr, MORE_STRIDE: tl.constexpr, R: tl.constexpr, KA: tl.constexpr,
    KB: tl.constexpr, NA: tl.constexpr, HAS_KEPT: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_MORE: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Hold all lines of the matrix, in pieces of KA and KB, for some tiles of R rows.

    The rows of the next tile are on their way while this one is multiplied and written.
    """
    across: tl.constexpr = tl.cdiv(N, NA)
    program, programs = tl.program_id(0) // across, tl.num_programs(0) // across
    n = tl.program_id(0) % across * NA + tl.arange(0, NA)
    a, b = tl.arange(0, KA), KA + tl.arange(0, KB)
    row = program * R + tl.arange(0, R)
    xa = load_kept(x_ptr, kept_ptr, row, a, rows, K, X_STRIDE, KEPT_STRIDE, HAS_KEPT)
    xb = load_kept(x_ptr, kept_ptr, row, b, rows, K, X_STRIDE, KEPT_STRIDE, HAS_KEPT)
    more = row
    if HAS_MORE:
        more = load_tile(more_ptr, row, n, rows, MORE_STRIDE, N)
    ma = load_matrix(matrix_ptr, a, n, K, N, AT_K, AT_N)
    mb = load_matrix(matrix_ptr, b, n, K, N, AT_K, AT_N)
    for _ in range(tl.cdiv(tl.cdiv(rows, R) - program, programs)):
        following = row + programs * R
        next_a = load_kept(x_ptr, kept_ptr, following, a, rows, K, X_STRIDE, KEPT_STRIDE, HAS_KEPT)
        next_b = load_kept(x_ptr, kept_ptr, following, b, rows, K, X_STRIDE, KEPT_STRIDE, HAS_KEPT)
        y = tl.dot(xa, ma, input_precision="tf32")
        y = tl.dot(xb, mb, y, input_precision="tf32")
        write_part(y, more, bias_ptr, y_ptr, row, n, rows, N, HAS_BIAS, HAS_MORE, IS_RELU)
        if HAS_MORE:
            more = load_tile(more_ptr, following, n, rows, MORE_STRIDE, N)
        row, xa, xb = following, next_a, next_b


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def pieces_product_kernel(
    x_ptr, kept_ptr, matrix_ptr, bias_ptr, more_ptr, y_ptr, rows, K: tl.constexpr,
    N: tl.constexpr, AT_K: tl.constexpr, AT_N: tl.constexpr, X_STRIDE: tl.constexpr,
    KEPT_STRIDE: tl.constexpr, MORE_STRIDE: tl.constexpr, R: tl.constexpr, KB: tl.constexpr,
    NA: tl.constexpr, NB: tl.constexpr, STAGES: tl.constexpr, HAS_KEPT: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_MORE: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Take KB lines of NA + NB channels of the matrix at a time, for one tile of R rows."""
    across: tl.constexpr = tl.cdiv(N, NA + NB)
    block = tl.program_id(0) % across * (NA + NB)
    n = block + tl.arange(0, NA)
    row = tl.program_id(0) // across * R + tl.arange(0, R)
    ya, more_a = tl.zeros([R, NA], tl.float32), row
    if NB > 0:
        m = block + NA + tl.arange(0, NB)
        yb, more_b = tl.zeros([R, NB], tl.float32), row
    for first in tl.range(0, K, KB, num_stages=STAGES):
        k = first + tl.arange(0, KB)
        x = load_kept(x_ptr, kept_ptr, row, k, rows, K, X_STRIDE, KEPT_STRIDE, HAS_KEPT)
        piece = load_matrix(matrix_ptr, k, n, K, N, AT_K, AT_N)
        ya = tl.dot(x, piece, ya, input_precision="tf32")
        if NB > 0:
            piece = load_matrix(matrix_ptr, k, m, K, N, AT_K, AT_N)
            yb = tl.dot(x, piece, yb, input_precision="tf32")
    if HAS_MORE:
        more_a = load_tile(more_ptr, row, n, rows, MORE_STRIDE, N)
    write_part(ya, more_a, bias_ptr, y_ptr, row, n, rows, N, HAS_BIAS, HAS_MORE, IS_RELU)
    if NB > 0:
        if HAS_MORE:
            more_b = load_tile(more_ptr, row, m, rows, MORE_STRIDE, N)
        write_part(yb, more_b, bias_ptr, y_ptr, row, m, rows, N, HAS_BIAS, HAS_MORE, IS_RELU)

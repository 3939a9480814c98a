"""Triton kernels that multiply many rows by a small matrix.

A program writes a block of channels of the product. Blocks of the same rows come one after the
other: the cache still has the rows. The matrix is a weight or a weight turned round: its strides
say which.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.linear.fused_kernels import load_tile


@no_type_check
@triton.jit
def load_matrix(ptr, k, n, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr, AT_N: tl.constexpr):  # fmt: skip  # noqa: E501
    """Load a block of the matrix; 0 outside."""
    at = k[:, None] * AT_K + n[None, :] * AT_N
    return tl.load(ptr + at, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)


@no_type_check
@triton.jit
def write_part(
    y, other, bias_ptr, y_ptr, row, n, rows, N: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_OTHER: tl.constexpr, IS_CUT: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Write channels of the product, plus others, or 0 where those are not above 0 (`IS_CUT`)."""
    if HAS_BIAS:
        y += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    if HAS_OTHER:
        y = tl.where(other <= 0, 0.0, y) if IS_CUT else y + other
    if IS_RELU:
        y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    at = row.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(y_ptr + at, y, mask=(row < rows)[:, None] & (n < N)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def held_product_kernel(
    x_ptr, matrix_ptr, bias_ptr, other_ptr, y_ptr, rows, K: tl.constexpr, N: tl.constexpr,
    AT_K: tl.constexpr, AT_N: tl.constexpr, X_STRIDE: tl.constexpr, OTHER_STRIDE: tl.constexpr,
    R: tl.constexpr, KA: tl.constexpr, KB: tl.constexpr, NA: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_OTHER: tl.constexpr, IS_CUT: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Hold all lines of the matrix, in pieces of KA and KB, for some tiles of R rows.

    The rows of the next tile are on their way while this one is multiplied and written; others are
    loaded after that, which takes fewer registers than between product and writing.
    """
    across: tl.constexpr = tl.cdiv(N, NA)
    program, programs = tl.program_id(0) // across, tl.num_programs(0) // across
    n = tl.program_id(0) % across * NA + tl.arange(0, NA)
    a, b = tl.arange(0, KA), KA + tl.arange(0, KB)
    row = program * R + tl.arange(0, R)
    xa = load_tile(x_ptr, row, a, rows, X_STRIDE, K)
    xb = load_tile(x_ptr, row, b, rows, X_STRIDE, K)
    other = row
    if HAS_OTHER:
        other = load_tile(other_ptr, row, n, rows, OTHER_STRIDE, N)
    ma = load_matrix(matrix_ptr, a, n, K, N, AT_K, AT_N)
    mb = load_matrix(matrix_ptr, b, n, K, N, AT_K, AT_N)
    for _ in range(tl.cdiv(tl.cdiv(rows, R) - program, programs)):
        following = row + programs * R
        next_a = load_tile(x_ptr, following, a, rows, X_STRIDE, K)
        next_b = load_tile(x_ptr, following, b, rows, X_STRIDE, K)
        y = tl.dot(xa, ma, input_precision="tf32")
        y = tl.dot(xb, mb, y, input_precision="tf32")
        write_part(y, other, bias_ptr, y_ptr, row, n, rows, N, HAS_BIAS, HAS_OTHER, IS_CUT, IS_RELU)
        if HAS_OTHER:
            other = load_tile(other_ptr, following, n, rows, OTHER_STRIDE, N)
        row, xa, xb = following, next_a, next_b


@no_type_check
@triton.jit
def multiply_pieces(
    x_ptr, matrix_ptr, row, n, m, rows, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr,
    AT_N: tl.constexpr, X_STRIDE: tl.constexpr, R: tl.constexpr, KB: tl.constexpr,
    NA: tl.constexpr, NB: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Multiply R rows by channels n, and m if there are NB of those, KB lines at a time."""
    ya, yb = tl.zeros([R, NA], tl.float32), row
    if NB > 0:
        yb = tl.zeros([R, NB], tl.float32)
    for first in tl.range(0, K, KB, num_stages=STAGES):
        k = first + tl.arange(0, KB)
        x = load_tile(x_ptr, row, k, rows, X_STRIDE, K)
        piece = load_matrix(matrix_ptr, k, n, K, N, AT_K, AT_N)
        ya = tl.dot(x, piece, ya, input_precision="tf32")
        if NB > 0:
            piece = load_matrix(matrix_ptr, k, m, K, N, AT_K, AT_N)
            yb = tl.dot(x, piece, yb, input_precision="tf32")
    return ya, yb


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def pieces_product_kernel(
    x_ptr, matrix_ptr, bias_ptr, other_ptr, y_ptr, rows, K: tl.constexpr, N: tl.constexpr,
    AT_K: tl.constexpr, AT_N: tl.constexpr, X_STRIDE: tl.constexpr, OTHER_STRIDE: tl.constexpr,
    R: tl.constexpr, KB: tl.constexpr, NA: tl.constexpr, NB: tl.constexpr, STAGES: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_OTHER: tl.constexpr, IS_CUT: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Take KB lines of NA + NB channels of the matrix at a time, for one tile of R rows."""
    across: tl.constexpr = tl.cdiv(N, NA + NB)
    block = tl.program_id(0) % across * (NA + NB)
    n = block + tl.arange(0, NA)
    row = tl.program_id(0) // across * R + tl.arange(0, R)
    m = n
    if NB > 0:
        m = block + NA + tl.arange(0, NB)
    ya, yb = multiply_pieces(
        x_ptr, matrix_ptr, row, n, m, rows, K, N, AT_K, AT_N, X_STRIDE, R, KB, NA, NB, STAGES
    )
    other_a, other_b = row, row
    if HAS_OTHER:
        other_a = load_tile(other_ptr, row, n, rows, OTHER_STRIDE, N)
    write_part(ya, other_a, bias_ptr, y_ptr, row, n, rows, N, HAS_BIAS, HAS_OTHER, IS_CUT, IS_RELU)
    if NB > 0:
        if HAS_OTHER:
            other_b = load_tile(other_ptr, row, m, rows, OTHER_STRIDE, N)
        write_part(
            yb, other_b, bias_ptr, y_ptr, row, m, rows, N, HAS_BIAS, HAS_OTHER, IS_CUT, IS_RELU
        )

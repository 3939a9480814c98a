"""Triton kernels of the layer: linear maps and gradients, activation with dropout, centred sums.

There are many rows and few channels. A program of a weight gradient runs over `tiles` tiles of R
rows and writes one row of partial sums, which are added up later in a fixed order.
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
    """Write a program's partial block [OB, IB] of the gradients of weight and bias."""
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
        # All blocks of inputs have the same sums; the first writes them.
        tl.store(parts_ptr + OUT * IN + out, sums, mask=out + tl.program_id(2) * OUT < OUT)


@no_type_check
@triton.jit
def load_matrix(ptr, k, n, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr, AT_N: tl.constexpr):  # fmt: skip  # noqa: E501
    """Load a block of the matrix; 0 outside."""
    at = k[:, None] * AT_K + n[None, :] * AT_N
    return tl.load(ptr + at, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)


@no_type_check
@triton.jit
def nearest(x, ROUNDS: tl.constexpr):
    """Round to the nearest TF32 number; tensor cores would truncate."""
    if ROUNDS:
        bits = x.to(tl.int32, bitcast=True)
        x = tl.where(tl.abs(x) < float("inf"), (bits + 0x1000).to(tl.float32, bitcast=True), x)
    return x


@no_type_check
@triton.jit
def write_part(
    y, other, bias_ptr, y_ptr, row, n, rows, N: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_OTHER: tl.constexpr, IS_CUT: tl.constexpr, IS_RELU: tl.constexpr,
):  # fmt: skip
    """Write columns of the product: y + bias + other, or with IS_CUT 0 where other <= 0."""
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
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """Multiply several tiles of R rows by a matrix kept in registers, as KA and KB of its rows.

    The next tile is loaded while this one is multiplied and written; `other` is loaded after the
    store, which takes fewer registers than before it.
    """
    across: tl.constexpr = tl.cdiv(N, NA)
    program, programs = tl.program_id(0) // across, tl.num_programs(0) // across
    n = tl.program_id(0) % across * NA + tl.arange(0, NA)
    a, b = tl.arange(0, KA), KA + tl.arange(0, KB)
    row = program * R + tl.arange(0, R)
    xa = load_block(x_ptr, row, a, rows, X_STRIDE, K)
    xb = load_block(x_ptr, row, b, rows, X_STRIDE, K)
    other = row
    if HAS_OTHER:
        other = load_block(other_ptr, row, n, rows, OTHER_STRIDE, N)
    ma = nearest(load_matrix(matrix_ptr, a, n, K, N, AT_K, AT_N), ROUNDS)
    mb = nearest(load_matrix(matrix_ptr, b, n, K, N, AT_K, AT_N), ROUNDS)
    for _ in range(tl.cdiv(tl.cdiv(rows, R) - program, programs)):
        following = row + programs * R
        next_a = load_block(x_ptr, following, a, rows, X_STRIDE, K)
        next_b = load_block(x_ptr, following, b, rows, X_STRIDE, K)
        y = tl.dot(nearest(xa, ROUNDS), ma, input_precision="tf32")
        y = tl.dot(nearest(xb, ROUNDS), mb, y, input_precision="tf32")
        write_part(y, other, bias_ptr, y_ptr, row, n, rows, N, HAS_BIAS, HAS_OTHER, IS_CUT, IS_RELU)
        if HAS_OTHER:
            other = load_block(other_ptr, following, n, rows, OTHER_STRIDE, N)
        row, xa, xb = following, next_a, next_b


@no_type_check
@triton.jit
def multiply_pieces(
    x_ptr, matrix_ptr, row, n, m, rows, K: tl.constexpr, N: tl.constexpr, AT_K: tl.constexpr,
    AT_N: tl.constexpr, X_STRIDE: tl.constexpr, R: tl.constexpr, KB: tl.constexpr,
    NA: tl.constexpr, NB: tl.constexpr, STAGES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Multiply R rows by the columns n, and m if NB > 0, over pieces of KB rows of the matrix."""
    ya, yb = tl.zeros([R, NA], tl.float32), row
    if NB > 0:
        yb = tl.zeros([R, NB], tl.float32)
    for first in tl.range(0, K, KB, num_stages=STAGES):
        k = first + tl.arange(0, KB)
        x = nearest(load_block(x_ptr, row, k, rows, X_STRIDE, K), ROUNDS)
        piece = nearest(load_matrix(matrix_ptr, k, n, K, N, AT_K, AT_N), ROUNDS)
        ya = tl.dot(x, piece, ya, input_precision="tf32")
        if NB > 0:
            piece = nearest(load_matrix(matrix_ptr, k, m, K, N, AT_K, AT_N), ROUNDS)
            yb = tl.dot(x, piece, yb, input_precision="tf32")
    return ya, yb


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def pieces_product_kernel(
    x_ptr, matrix_ptr, bias_ptr, other_ptr, y_ptr, rows, K: tl.constexpr, N: tl.constexpr,
    AT_K: tl.constexpr, AT_N: tl.constexpr, X_STRIDE: tl.constexpr, OTHER_STRIDE: tl.constexpr,
    R: tl.constexpr, KB: tl.constexpr, NA: tl.constexpr, NB: tl.constexpr, STAGES: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_OTHER: tl.constexpr, IS_CUT: tl.constexpr, IS_RELU: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """Multiply one tile of R rows by NA + NB columns, over pieces of KB rows of the matrix."""
    across: tl.constexpr = tl.cdiv(N, NA + NB)
    block = tl.program_id(0) % across * (NA + NB)
    n = block + tl.arange(0, NA)
    row = tl.program_id(0) // across * R + tl.arange(0, R)
    m = n
    if NB > 0:
        m = block + NA + tl.arange(0, NB)
    ya, yb = multiply_pieces(
        x_ptr,
        matrix_ptr,
        row,
        n,
        m,
        rows,
        K,
        N,
        AT_K,
        AT_N,
        X_STRIDE,
        R,
        KB,
        NA,
        NB,
        STAGES,
        ROUNDS,
    )
    other_a, other_b = row, row
    if HAS_OTHER:
        other_a = load_block(other_ptr, row, n, rows, OTHER_STRIDE, N)
    write_part(ya, other_a, bias_ptr, y_ptr, row, n, rows, N, HAS_BIAS, HAS_OTHER, IS_CUT, IS_RELU)
    if NB > 0:
        if HAS_OTHER:
            other_b = load_block(other_ptr, row, m, rows, OTHER_STRIDE, N)
        write_part(
            yb, other_b, bias_ptr, y_ptr, row, m, rows, N, HAS_BIAS, HAS_OTHER, IS_CUT, IS_RELU
        )


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def narrow_product_kernel(
    x_ptr, weight_ptr, y_ptr, rows, OUT: tl.constexpr, IN: tl.constexpr, X_STRIDE: tl.constexpr,
    R: tl.constexpr, OB: tl.constexpr,
):  # fmt: skip
    """Multiply R rows of few columns by a weight, in float32."""
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
    WIDTH: tl.constexpr, BLOCKS: tl.constexpr, R: tl.constexpr, OB: tl.constexpr,
    WB: tl.constexpr,
):  # fmt: skip
    """Write rows of grad W, which has few columns, then the sums over blocks of b and c."""
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
    b, c = tl.zeros([R, WB], tl.float32), tl.zeros([R, WB], tl.float32)
    for block in tl.static_range(BLOCKS):
        shift = block * rows.to(tl.int64) * WIDTH
        b += tl.load(b_ptr + shift + at, mask=mask, other=0.0)
        c += tl.load(c_ptr + shift + at, mask=mask, other=0.0)
    tl.store(place, b, mask=mask)
    tl.store(place + WIDTH, c, mask=mask)


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


@no_type_check
@triton.jit
def center_kernel(
    x_ptr, own_ptr, target_ptr, ptr_ptr, out_ptr, CHANNELS: tl.constexpr, OWN_STRIDE: tl.constexpr,
    HAS_OWN: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add the centred sums of a graph, d (m - sum(d m) / edges) / sqrt(edges / nodes), to own.

    m is the mean of the messages of a node, d their number; x holds own + m. Without HAS_OWN, x is
    the gradient of the output, and the gradient of m is written.
    """
    begin, end = tl.load(ptr_ptr + tl.program_id(0)), tl.load(ptr_ptr + tl.program_id(0) + 1)
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    edges = (tl.load(target_ptr + end) - tl.load(target_ptr + begin)).to(tl.float32)
    edges = tl.maximum(edges, 1.0)
    scale = tl.rsqrt(edges / tl.maximum((end - begin).to(tl.float32), 1.0))
    total = tl.zeros([C], tl.float32)
    for is_second in tl.static_range(2):
        shared = total / edges
        for first in range(begin, end, T):
            row = first + t
            degree = tl.load(target_ptr + row + 1, mask=row < end, other=0)
            degree = (degree - tl.load(target_ptr + row, mask=row < end, other=0)).to(tl.float32)
            value = load_block(x_ptr, row, c, end, CHANNELS, CHANNELS).to(tl.float32)
            own = value
            if HAS_OWN:
                own = load_block(own_ptr, row, c, end, OWN_STRIDE, CHANNELS).to(tl.float32)
                value = (value - own) * degree[:, None]
            else:
                value = value * scale
            if is_second == 0:
                total += tl.sum(value if HAS_OWN else value * degree[:, None], axis=0)
            else:
                value -= shared[None, :] * degree[:, None] if HAS_OWN else shared[None, :]
                value = own + value * scale if HAS_OWN else value * degree[:, None]
                at = row.to(tl.int64)[:, None] * CHANNELS + c[None, :]
                inside = (row < end)[:, None] & (c < CHANNELS)[None, :]
                tl.store(out_ptr + at, value, mask=inside)

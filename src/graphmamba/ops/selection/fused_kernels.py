"""Triton kernels of the selection: steps, B and C of a row, and their gradients.

Rows of the projection are laid out as B, C, then the low-rank step, so that the scan reads B and C
from aligned places; the weight's rows come in the order of the original code: step, B, C.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.linear.fused_kernels import load_tile


@no_type_check
@triton.jit
def store_tile(ptr, row, column, value, rows, STRIDE: tl.constexpr, COLUMNS: tl.constexpr):
    """Store what `load_tile` would load."""
    at = row.to(tl.int64)[:, None] * STRIDE + column[None, :]
    tl.store(ptr + at, value, mask=(row < rows)[:, None] & (column < COLUMNS)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def selection_fwd_kernel(
    u_ptr, select_ptr, step_ptr, out_ptr, delta_ptr, rows, INNER: tl.constexpr,
    STATE: tl.constexpr, RANK: tl.constexpr, U_STRIDE: tl.constexpr, OUT_STRIDE: tl.constexpr,
    R: tl.constexpr, IB: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ONLY_DELTA: tl.constexpr,
):  # fmt: skip
    """Write B, C and the low-rank step of R rows, and the raw steps; or these alone, from it."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    c, n, k = tl.arange(0, IB), tl.arange(0, N), tl.arange(0, K)
    if ONLY_DELTA:
        low = load_tile(out_ptr + 2 * STATE, row, k, rows, OUT_STRIDE, RANK)
    else:
        u = load_tile(u_ptr, row, c, rows, U_STRIDE, INNER)
        of_low = load_tile(select_ptr, k, c, RANK, INNER, INNER)
        of_B = load_tile(select_ptr + RANK * INNER, n, c, STATE, INNER, INNER)
        of_C = load_tile(select_ptr + (RANK + STATE) * INNER, n, c, STATE, INNER, INNER)
        B = tl.dot(u, tl.trans(of_B), input_precision="tf32")
        C = tl.dot(u, tl.trans(of_C), input_precision="tf32")
        low = tl.dot(u, tl.trans(of_low), input_precision="tf32")
        store_tile(out_ptr, row, n, B, rows, OUT_STRIDE, STATE)
        store_tile(out_ptr + STATE, row, n, C, rows, OUT_STRIDE, STATE)
        store_tile(out_ptr + 2 * STATE, row, k, low, rows, OUT_STRIDE, RANK)
    to_step = load_tile(step_ptr, c, k, INNER, RANK, RANK)
    delta = tl.dot(low, tl.trans(to_step), input_precision="tf32")
    store_tile(delta_ptr, row, c, delta, rows, INNER, INNER)


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles"])
def selection_bwd_kernel(
    du_ptr, d_delta_ptr, dB_ptr, dC_ptr, u_ptr, low_ptr, select_ptr, step_ptr, out_ptr, lines_ptr,
    rows, tiles, INNER: tl.constexpr, STATE: tl.constexpr, RANK: tl.constexpr,
    DU_STRIDE: tl.constexpr, DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr,
    C_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr, LOW_STRIDE: tl.constexpr, R: tl.constexpr,
    IB: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of u, added to what is there, and a line of those of both weights."""
    program = tl.program_id(0).to(tl.int64)
    c, n, k = tl.arange(0, IB), tl.arange(0, N), tl.arange(0, K)
    of_low = load_tile(select_ptr, k, c, RANK, INNER, INNER)
    of_B = load_tile(select_ptr + RANK * INNER, n, c, STATE, INNER, INNER)
    of_C = load_tile(select_ptr + (RANK + STATE) * INNER, n, c, STATE, INNER, INNER)
    to_step = load_tile(step_ptr, c, k, INNER, RANK, RANK)
    sum_low, sum_step = tl.zeros([K, IB], tl.float32), tl.zeros([K, IB], tl.float32)
    sum_B, sum_C = tl.zeros([N, IB], tl.float32), tl.zeros([N, IB], tl.float32)
    for tile in tl.range(0, tiles, num_stages=STAGES):
        row = (program * tiles + tile) * R + tl.arange(0, R)
        d_delta = load_tile(d_delta_ptr, row, c, rows, DELTA_STRIDE, INNER)
        u = load_tile(u_ptr, row, c, rows, U_STRIDE, INNER)
        dB = load_tile(dB_ptr, row, n, rows, B_STRIDE, STATE)
        dC = load_tile(dC_ptr, row, n, rows, C_STRIDE, STATE)
        low = load_tile(low_ptr, row, k, rows, LOW_STRIDE, RANK)
        du = load_tile(du_ptr, row, c, rows, DU_STRIDE, INNER)
        d_low = tl.dot(d_delta, to_step, input_precision="tf32")
        du = tl.dot(d_low, of_low, du, input_precision="tf32")
        du = tl.dot(dB, of_B, du, input_precision="tf32")
        du = tl.dot(dC, of_C, du, input_precision="tf32")
        store_tile(out_ptr, row, c, du, rows, INNER, INNER)
        sum_step = tl.dot(tl.trans(low), d_delta, sum_step, input_precision="tf32")
        sum_low = tl.dot(tl.trans(d_low), u, sum_low, input_precision="tf32")
        sum_B = tl.dot(tl.trans(dB), u, sum_B, input_precision="tf32")
        sum_C = tl.dot(tl.trans(dC), u, sum_C, input_precision="tf32")
    lines_ptr += program * ((2 * RANK + 2 * STATE) * INNER)
    store_tile(lines_ptr, k, c, sum_low, RANK, INNER, INNER)
    store_tile(lines_ptr + RANK * INNER, n, c, sum_B, STATE, INNER, INNER)
    store_tile(lines_ptr + (RANK + STATE) * INNER, n, c, sum_C, STATE, INNER, INNER)
    to_lines = lines_ptr + (RANK + 2 * STATE) * INNER
    store_tile(to_lines, c, k, tl.trans(sum_step), INNER, RANK, RANK)

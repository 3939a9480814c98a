"""Where a walk back over a chunk begins, and what it leaves: the same for both backward kernels."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.step_kernels import load_starts, within


@no_type_check
@triton.jit
def at_chunk(
    first, steps, grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr, ddelta_ptr,
    dB_ptr, dC_ptr, dz_ptr, GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr,
    C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr, Z_STRIDE: tl.constexpr,
    DZ_STRIDE: tl.constexpr, INNER: tl.constexpr, STATE: tl.constexpr, HAS_ORDER: tl.constexpr,
    SCATTER: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Move all pointers to the first step of a chunk, but for rows that `order` will gather."""
    base = steps - 1 - first if REVERSE else first
    far = base.to(tl.int64)
    u_ptr += far * U_STRIDE
    delta_ptr += far * DELTA_STRIDE
    B_ptr += far * B_STRIDE + B_SHIFT
    C_ptr += far * C_STRIDE + C_SHIFT
    order_ptr += base
    du_ptr += far * INNER
    ddelta_ptr += far * INNER
    part = tl.program_id(1).to(tl.int64) * steps
    dB_ptr += (part + far) * STATE
    dC_ptr += (part + far) * STATE
    if not SCATTER:
        grad_ptr += far * GRAD_STRIDE
        dz_ptr += far * DZ_STRIDE
    if not HAS_ORDER:
        z_ptr += far * Z_STRIDE
    return (
        grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr, ddelta_ptr, dB_ptr,
        dC_ptr, dz_ptr,
    )  # fmt: skip


@no_type_check
@triton.jit
def load_adjoint(
    adjoints_ptr, starts_ptr, chunk, chunks, tile, CHUNK: tl.constexpr, WIDTH: tl.constexpr,
    N: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Load what the next chunk passes back to this one."""
    adjoint = tl.zeros([N, C], tl.float32)
    if chunk < chunks - 1:
        # Where the next chunk begins with a start, nothing comes back from it, nor was written.
        is_end = load_starts(starts_ptr, chunk * CHUNK + CHUNK, 1) != 0
        adjoint = tl.load(
            adjoints_ptr + chunk.to(tl.int64) * N * WIDTH + tile,
            mask=within(tile, N * WIDTH, is_end == 0), other=0.0,
        )  # fmt: skip
    return adjoint


@no_type_check
@triton.jit
def store_parts(parts_ptr, chunk, tile, c, dA, dD, dbias, WIDTH: tl.constexpr, N: tl.constexpr):
    """Write a chunk's share of the gradients of A, D and the bias, and return where it lies."""
    parts_ptr += chunk.to(tl.int64) * (N + 2) * WIDTH
    tl.store(parts_ptr + tile, dA)
    tl.store(parts_ptr + N * WIDTH + c, dD)
    tl.store(parts_ptr + (N + 1) * WIDTH + c, dbias)
    return parts_ptr

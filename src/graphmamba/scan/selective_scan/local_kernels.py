"""Triton kernels that find what each chunk passes on by itself, whatever it is entered with.

The pointers to states are not specialised on alignment: loads of one word then give every thread
one channel with all its states, so that sums over the states cross no threads.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.selective_scan.step_kernels import (
    advance,
    hold_loads_here,
    keep_alive,
    load_grads,
    load_states,
    load_steps,
    starts_in_chunk,
    step_sizes,
    touch,
)
from graphmamba.scan.triton_math import sigmoid


@no_type_check
@triton.jit(do_not_specialize_on_alignment=["A2_ptr", "ends_ptr"])
def local_fwd_kernel(
    u_ptr, delta_ptr, A2_ptr, B_ptr, bias_ptr, starts_ptr, ends_ptr, sums_ptr, keeps_ptr, steps,
    INNER: tl.constexpr, STATE: tl.constexpr, U_STRIDE: tl.constexpr, DELTA_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr, CHUNK: tl.constexpr, GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    N: tl.constexpr, C: tl.constexpr, HAS_BIAS: tl.constexpr, SOFTPLUS: tl.constexpr,
    ZOH: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """End state of each chunk but the last, as if it were entered with a state of zero."""
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    # Only what follows the last start in the chunk reaches its end.
    is_start = starts_in_chunk(starts_ptr, chunk, steps, CHUNK)
    last_start = tl.max(tl.where(is_start, tl.arange(0, CHUNK), -1))
    tl.store(keeps_ptr + chunk, (last_start < 0).to(tl.int8), mask=tl.program_id(1) == 0)
    begin = tl.maximum(last_start, 0) // GROUP * GROUP
    count = CHUNK - begin

    A2 = tl.load(A2_ptr + n[:, None] * WIDTH + c[None, :])
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    SIGN: tl.constexpr = -1 if REVERSE else 1
    tau = chunk * CHUNK + begin
    far = (steps - 1 - tau if REVERSE else tau).to(tl.int64)
    u_ptr += far * U_STRIDE
    delta_ptr += far * DELTA_STRIDE
    B_ptr += far * B_STRIDE + B_SHIFT

    h = tl.zeros([N, C], tl.float32)
    total = tl.zeros([C], tl.float32)
    # Loads run a group ahead of the arithmetic, which then hides them.
    us = load_steps(u_ptr, c, count, SIGN * U_STRIDE, INNER, GROUP)
    raws = load_steps(delta_ptr, c, count, SIGN * DELTA_STRIDE, INNER, GROUP)
    touching = touch(B_ptr, B_ptr, count, SIGN * B_STRIDE, SIGN * B_STRIDE, STATE, GROUP)
    touched = touching
    B = load_states(B_ptr, n, 0, count, SIGN * B_STRIDE, STATE)
    for group in range(0, count, GROUP):
        u_ptr += GROUP * SIGN * U_STRIDE
        delta_ptr += GROUP * SIGN * DELTA_STRIDE
        left = count - group - GROUP
        next_us = load_steps(u_ptr, c, left, SIGN * U_STRIDE, INNER, GROUP)
        next_raws = load_steps(delta_ptr, c, left, SIGN * DELTA_STRIDE, INNER, GROUP)
        touched = tl.maximum(touched, touching)
        next_group = B_ptr + GROUP * SIGN * B_STRIDE
        touching = touch(
            next_group, next_group, left, SIGN * B_STRIDE, SIGN * B_STRIDE, STATE, GROUP
        )
        dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
        for i in tl.static_range(GROUP):
            next_B = load_states(B_ptr, n, i + 1, left + GROUP, SIGN * B_STRIDE, STATE)
            hold_loads_here()
            total += dts[i]
            h = tl.where(begin + group + i <= last_start, 0.0, h)
            _, h = advance(h, dts[i], us[i].to(tl.float32), B, A2, ZOH)
            B = next_B
        us, raws, B_ptr = next_us, next_raws, next_group
    tl.store(ends_ptr + (chunk.to(tl.int64) * N + n[:, None]) * WIDTH + c[None, :], h)
    tl.store(sums_ptr + chunk * WIDTH + c, total)
    keep_alive(sums_ptr, touched, steps, 8 * GROUP)


@no_type_check
@triton.jit(do_not_specialize_on_alignment=["A2_ptr", "ends_ptr"])
def local_bwd_kernel(
    grad_ptr, delta_ptr, A2_ptr, C_ptr, z_ptr, bias_ptr, starts_ptr, order_ptr,
    ends_ptr, sums_ptr, keeps_ptr, steps, rows,
    INNER: tl.constexpr, STATE: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr,
    Z_STRIDE: tl.constexpr,
    CHUNK: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr,
    C: tl.constexpr, HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ORDER: tl.constexpr,
    HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr, SOFTPLUS: tl.constexpr,
    REVERSE: tl.constexpr,
):  # fmt: skip
    """Adjoint that a chunk sends to the state it was entered with, from its own outputs alone."""
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    first = chunk * CHUNK
    # Only what comes before the first start in the chunk hangs on the state it was entered with.
    is_start = starts_in_chunk(starts_ptr, chunk, steps, CHUNK)
    first_start = tl.min(tl.where(is_start, tl.arange(0, CHUNK), CHUNK))
    tl.store(keeps_ptr + chunk, (first_start == CHUNK).to(tl.int8), mask=tl.program_id(1) == 0)
    count = tl.minimum(first_start, steps - first)

    A2 = tl.load(A2_ptr + n[:, None] * WIDTH + c[None, :])
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    SIGN: tl.constexpr = -1 if REVERSE else 1
    base = steps - 1 - first if REVERSE else first
    far = base.to(tl.int64)
    delta_ptr += far * DELTA_STRIDE
    C_ptr += far * C_STRIDE + C_SHIFT
    order_ptr += base
    if not SCATTER:
        grad_ptr += far * GRAD_STRIDE
    if not HAS_ORDER:
        z_ptr += far * Z_STRIDE

    adjoint = tl.zeros([N, C], tl.float32)
    total = tl.zeros([C], tl.float32)
    raws = load_steps(delta_ptr, c, count, SIGN * DELTA_STRIDE, INNER, GROUP)
    dys, zs, _ = load_grads(
        grad_ptr, z_ptr, order_ptr, rows, c, count, SIGN, GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z,
        HAS_ORDER, HAS_SAMPLES, SCATTER, GROUP,
    )  # fmt: skip
    touching = touch(C_ptr, C_ptr, count, SIGN * C_STRIDE, SIGN * C_STRIDE, STATE, GROUP)
    touched = touching
    Ct = load_states(C_ptr, n, 0, count, SIGN * C_STRIDE, STATE)
    for group in range(0, count, GROUP):
        left = count - group - GROUP
        ahead = (group + GROUP) * SIGN
        next_raws = load_steps(
            delta_ptr + ahead * DELTA_STRIDE, c, left, SIGN * DELTA_STRIDE, INNER, GROUP
        )
        next_grad, next_z = grad_ptr, z_ptr
        if not SCATTER:
            next_grad = grad_ptr + ahead * GRAD_STRIDE
        if not HAS_ORDER:
            next_z = z_ptr + ahead * Z_STRIDE
        next_dys, next_zs, _ = load_grads(
            next_grad, next_z, order_ptr + ahead, rows, c, left, SIGN, GRAD_STRIDE, Z_STRIDE,
            INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, GROUP,
        )  # fmt: skip
        touched = tl.maximum(touched, touching)
        next_C = C_ptr + GROUP * SIGN * C_STRIDE
        touching = touch(next_C, next_C, left, SIGN * C_STRIDE, SIGN * C_STRIDE, STATE, GROUP)
        dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
        for i in tl.static_range(GROUP):
            next_Ct = load_states(C_ptr, n, i + 1, left + GROUP, SIGN * C_STRIDE, STATE)
            hold_loads_here()
            # Past the count the gradient and C are 0, so that nothing is added.
            dy = dys[i].to(tl.float32)
            if HAS_Z:
                z = zs[i].to(tl.float32)
                dy *= z * sigmoid(z)
            total += tl.where(group + i < count, dts[i], 0.0)
            adjoint += tl.exp2(A2 * total[None, :]) * (Ct[:, None] * dy[None, :])
            Ct = next_Ct
        raws, dys, zs, C_ptr = next_raws, next_dys, next_zs, next_C
    tl.store(ends_ptr + (chunk.to(tl.int64) * N + n[:, None]) * WIDTH + c[None, :], adjoint)
    tl.store(sums_ptr + chunk * WIDTH + c, total)
    keep_alive(sums_ptr, touched, steps, 8 * GROUP)

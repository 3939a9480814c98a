"""Triton kernels that find what each chunk passes on by itself, whatever it is entered with.

The pointers to states are not specialised on alignment: loads of one word then give every thread
one channel with all its states, so that sums over the states cross no threads.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.step_kernels import (
    advance,
    follow,
    hold_loads_here,
    keep_alive,
    load_channels,
    load_grads,
    load_states,
    load_steps,
    starts_in_chunk,
    step_size,
    step_sizes,
    through_gate,
    touch,
)


@no_type_check
@triton.jit(do_not_specialize_on_alignment=["A2_ptr", "ends_ptr"])
def local_fwd_kernel(
    u_ptr, delta_ptr, A2_ptr, B_ptr, bias_ptr, starts_ptr, ends_ptr, sums_ptr, keeps_ptr, steps,
    INNER: tl.constexpr, STATE: tl.constexpr, U_STRIDE: tl.constexpr, DELTA_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr, CHUNK: tl.constexpr, GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    N: tl.constexpr, C: tl.constexpr, HAS_BIAS: tl.constexpr, SOFTPLUS: tl.constexpr,
    ZOH: tl.constexpr, REVERSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """End state of each chunk but the last, as if it were entered with a state of zero."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    # Only what follows the last start in the chunk reaches its end.
    place, is_start = starts_in_chunk(starts_ptr, chunk, steps, CHUNK)
    last_start = tl.max(tl.where(is_start, place, -1))
    tl.store(keeps_ptr + chunk, (last_start < 0).to(tl.int8), mask=tl.program_id(1) == 0)
    begin = tl.maximum(last_start, 0)
    # Whole groups go fast, those steps before the first of them one by one.
    whole = (begin + GROUP - 1) // GROUP * GROUP

    A2 = tl.load(A2_ptr + n[:, None] * WIDTH + c[None, :])
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    SIGN: tl.constexpr = -1 if REVERSE else 1
    tau = chunk * CHUNK
    far = (steps - 1 - tau if REVERSE else tau).to(tl.int64)
    u_ptr += far * U_STRIDE
    delta_ptr += far * DELTA_STRIDE
    B_ptr += far * B_STRIDE + B_SHIFT

    h = tl.zeros([N, C], tl.float32)
    total = tl.zeros([C], tl.float32)
    for step in range(begin, whole):
        t = step * SIGN
        dt = step_size(load_channels(delta_ptr + t * DELTA_STRIDE, c, INNER), bias, SOFTPLUS)
        u = load_channels(u_ptr + t * U_STRIDE, c, INNER).to(tl.float32)
        B = load_states(B_ptr + t * B_STRIDE, n, STATE)
        total += dt
        h = advance(h, dt, u, B, A2, ZOH)[1]

    # Loads run a group ahead of the arithmetic, which then hides them; the last group is followed
    # by itself.
    here = tl.minimum(whole, CHUNK - GROUP) * SIGN
    us = load_steps(u_ptr + here * U_STRIDE, c, SIGN * U_STRIDE, INNER, GROUP)
    raws = load_steps(delta_ptr + here * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP)
    B_here = B_ptr + here * B_STRIDE
    touching = touch(B_here, B_here, GROUP, SIGN * B_STRIDE, SIGN * B_STRIDE, STATE, GROUP)
    touched = touching
    for group in range(whole, CHUNK, GROUP):
        ahead = tl.minimum(group + GROUP, CHUNK - GROUP) * SIGN
        next_us = load_steps(u_ptr + ahead * U_STRIDE, c, SIGN * U_STRIDE, INNER, GROUP)
        next_raws = load_steps(
            delta_ptr + ahead * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP
        )
        touched = tl.maximum(touched, touching)
        B_ahead = B_ptr + ahead * B_STRIDE
        touching = touch(B_ahead, B_ahead, GROUP, SIGN * B_STRIDE, SIGN * B_STRIDE, STATE, GROUP)
        # Always so, but the compiler cannot foresee it: what is loaded ahead of a branch has a
        # counter of its own, and nothing in this group waits for it.
        if steps + group > 0:
            dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
            B = load_states(B_here, n, STATE)
            for i in tl.static_range(GROUP):
                B_next = B_here + (i + 1 if i + 1 < GROUP else 0) * SIGN * B_STRIDE
                next_B = load_states(B_next, n, STATE)
                hold_loads_here()
                total += dts[i]
                h = advance(h, dts[i], us[i].to(tl.float32), B, A2, ZOH)[1]
                B = next_B
        us, raws, B_here = next_us, next_raws, B_ahead
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
    REVERSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Adjoint that a chunk sends to the state it was entered with, from its own outputs alone."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    first = chunk * CHUNK
    # Only what comes before the first start in the chunk hangs on the state it was entered with.
    place, is_start = starts_in_chunk(starts_ptr, chunk, steps, CHUNK)
    first_start = tl.min(tl.where(is_start, place, CHUNK))
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
    # Whole groups go fast, loads one group ahead; the last is followed by itself.
    whole = count // GROUP * GROUP
    # A last chunk of few steps has no group: what is read then lies before it, and is not used.
    here = tl.minimum(0, steps - first - GROUP) * SIGN
    raws = load_steps(delta_ptr + here * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP)
    dys, zs, _slots = load_grads(
        grad_ptr if SCATTER else grad_ptr + here * GRAD_STRIDE,
        z_ptr if HAS_ORDER else z_ptr + here * Z_STRIDE, order_ptr + here, rows, c, SIGN,
        GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, GROUP,
    )  # fmt: skip
    C_here = C_ptr + here * C_STRIDE
    touching = touch(C_here, C_here, GROUP, SIGN * C_STRIDE, SIGN * C_STRIDE, STATE, GROUP)
    touched = touching
    for group in range(0, whole, GROUP):
        ahead = tl.minimum(group + GROUP, whole - GROUP) * SIGN
        next_raws = load_steps(
            delta_ptr + ahead * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP
        )
        next_dys, next_zs, _next_slots = load_grads(
            grad_ptr if SCATTER else grad_ptr + ahead * GRAD_STRIDE,
            z_ptr if HAS_ORDER else z_ptr + ahead * Z_STRIDE, order_ptr + ahead, rows, c, SIGN,
            GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, GROUP,
        )  # fmt: skip
        touched = tl.maximum(touched, touching)
        C_ahead = C_ptr + ahead * C_STRIDE
        touching = touch(C_ahead, C_ahead, GROUP, SIGN * C_STRIDE, SIGN * C_STRIDE, STATE, GROUP)
        # As above: what is loaded ahead has a counter of its own.
        if steps + group > 0:
            dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
            Ct = load_states(C_here, n, STATE)
            for i in tl.static_range(GROUP):
                C_next = C_here + (i + 1 if i + 1 < GROUP else 0) * SIGN * C_STRIDE
                next_Ct = load_states(C_next, n, STATE)
                hold_loads_here()
                total += dts[i]
                dy = through_gate(dys[i], zs[i], HAS_Z)
                adjoint += tl.exp2(A2 * total[None, :]) * (Ct[:, None] * dy[None, :])
                Ct = next_Ct
        raws, dys, zs, C_here = next_raws, next_dys, next_zs, C_ahead
    for step in range(whole, count):
        t = step * SIGN
        total += step_size(load_channels(delta_ptr + t * DELTA_STRIDE, c, INNER), bias, SOFTPLUS)
        last_dy, last_z, _last_slot = load_grads(
            grad_ptr if SCATTER else grad_ptr + t * GRAD_STRIDE,
            z_ptr if HAS_ORDER else z_ptr + t * Z_STRIDE, order_ptr + t, rows, c, SIGN,
            GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, 1,
        )  # fmt: skip
        last_C = load_states(C_ptr + t * C_STRIDE, n, STATE)
        last = through_gate(last_dy[0], last_z[0], HAS_Z)
        adjoint += tl.exp2(A2 * total[None, :]) * (last_C[:, None] * last[None, :])
    tl.store(ends_ptr + (chunk.to(tl.int64) * N + n[:, None]) * WIDTH + c[None, :], adjoint)
    tl.store(sums_ptr + chunk * WIDTH + c, total)
    keep_alive(sums_ptr, touched, steps, 8 * GROUP)

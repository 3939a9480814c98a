"""Triton kernels that walk the packed steps backward and sum what they find.

As in `local_kernels`, every thread has one channel with all its states.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.chunk_kernels import at_chunk, load_adjoint, store_parts
from graphmamba.ops.selective_scan.lane_sums import sum_lanes
from graphmamba.ops.selective_scan.step_kernels import (
    advance,
    by_state,
    clear_at_start,
    follow,
    hold_loads_here,
    in_vector_registers,
    keep_alive,
    load_channels,
    load_grads,
    load_starts,
    load_states,
    load_steps,
    step_size,
    step_sizes,
    store_channels,
    touch,
    touch_rows,
    touch_tile,
)
from graphmamba.ops.selective_scan.swapped_states import sum_swapped, swapped_sums
from graphmamba.ops.triton_math import LN_2, hold_weight, hold_weight_slope, sigmoid

UNALIGNED = ["A2_ptr", "states_ptr", "adjoints_ptr", "parts_ptr"]


@no_type_check
@triton.jit
def walk_to(
    h, starts, count, u_ptr, delta_ptr, B_ptr, A2, bias, n, c, U_STEP: tl.constexpr,
    DELTA_STEP: tl.constexpr, B_STEP: tl.constexpr, INNER: tl.constexpr, STATE: tl.constexpr,
    SOFTPLUS: tl.constexpr, ZOH: tl.constexpr,
):  # fmt: skip
    """Return (decayed state, new state) of the last of `count` steps, among them starts."""
    p = tl.zeros_like(h)
    for i in range(count):
        dt = step_size(load_channels(delta_ptr + i * DELTA_STEP, c, INNER), bias, SOFTPLUS)
        u = load_channels(u_ptr + i * U_STEP, c, INNER).to(tl.float32)
        B = load_states(B_ptr + i * B_STEP, n, STATE)
        p, h = advance(clear_at_start(h, starts, i), dt, u, B, A2, ZOH)
    return p, h


@no_type_check
@triton.jit
def step_back(
    adjoint, dA, before, h, dt, raw, u, dy, z, B, Ct, A2, D, bias, HAS_Z: tl.constexpr,
    SOFTPLUS: tl.constexpr, ZOH: tl.constexpr, DECAYED: tl.constexpr,
):  # fmt: skip
    """Take the adjoint from behind a step, where the state is `h`, to before it.

    If DECAYED, `before` is the state before the step after its decay, and tells `h`.

    Returns it, dA so far, the gradients of u, of the raw delta and of the gate, dy before the gate,
    and g, v, h: the sums of g v and h dy over the channels are the gradients of B and C.
    """
    u, dy = u.to(tl.float32), dy.to(tl.float32)
    B, Ct = by_state(B), by_state(Ct)
    x = dt[None, :] * A2
    a = tl.exp2(x)
    weight = hold_weight(a, x * LN_2, dt[None, :], A2 * LN_2) if ZOH else dt[None, :]
    v = weight * u[None, :]
    if DECAYED:
        h = before + v * B
    dz = dy
    if HAS_Z:
        z = z.to(tl.float32)
        gate = sigmoid(z)
        y = tl.sum(h * Ct, axis=0) + D * u
        dz = dy * y * (gate * (1.0 + z * (1.0 - gate)))
        dy *= z * gate

    g = Ct * dy[None, :] + adjoint
    gB = g * B
    sent = a * g
    gp = g * before if DECAYED else sent * before
    dA += dt[None, :] * gp
    if ZOH:
        du = tl.sum(gB * weight, axis=0)
        ddt = tl.sum(A2 * LN_2 * gp + gB * a * u[None, :], axis=0)
        slope = hold_weight_slope(a, weight, x * LN_2, dt[None, :], A2 * LN_2)
        dA += slope * gB * u[None, :]
    else:
        sum_gB = tl.sum(gB, axis=0)
        du = dt * sum_gB
        ddt = LN_2 * tl.sum(A2 * gp, axis=0) + u * sum_gB
    draw = ddt
    if SOFTPLUS:
        draw = ddt * sigmoid(raw.to(tl.float32) + bias)
    return sent, dA, du + D * dy, draw, dz, dy, g, v, h


@no_type_check
@triton.jit
def both_sums(dB_ptr, dC_ptr, at, STATE: tl.constexpr, SWAPS: tl.constexpr):
    """Point to the gradients of B, then of C, of one step."""
    if SWAPS:
        return swapped_sums(dB_ptr, dC_ptr, at, STATE)
    lane = tl.arange(0, 2 * STATE)
    return tl.where(lane < STATE, dB_ptr + lane, dC_ptr + lane - STATE) + at * STATE


@no_type_check
@triton.jit
def load_sums(
    at, dB_ptr, dC_ptr, SIGN: tl.constexpr, STATE: tl.constexpr, ACCUMULATE: tl.constexpr,
    HALVES: tl.constexpr, SWAPS: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Load what other blocks of channels have left for the gradients of B and C, as a tuple."""
    sums = ()
    for i in tl.static_range(COUNT):
        if HALVES and ACCUMULATE:
            sums += (tl.load(both_sums(dB_ptr, dC_ptr, at + i * SIGN, STATE, SWAPS)),)
        else:
            sums += (0.0,)
    return sums


@no_type_check
@triton.jit
def store_step(
    at, dz_row, c, n, du, draw, dz, dy, g, v, h, sums, du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr,
    INNER: tl.constexpr, STATE: tl.constexpr, HAS_Z: tl.constexpr, ACCUMULATE: tl.constexpr,
    HALVES: tl.constexpr, SWAPS: tl.constexpr, DZ_STRIDE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one step."""
    store_channels(du_ptr, c, du, INNER, at * INNER)
    store_channels(ddelta_ptr, c, draw, INNER, at * INNER)
    if HAS_Z:
        store_channels(dz_ptr, c, dz, INNER, dz_row * DZ_STRIDE)
    if HALVES:
        own = sum_swapped(g, v, h, dy[None, :], n) if SWAPS else sum_lanes(g, v, h, dy[None, :], n)
        tl.store(both_sums(dB_ptr, dC_ptr, at, STATE, SWAPS), own + sums)
    else:
        dB = tl.sum(g * v, axis=1)
        dC = tl.sum(h * dy[None, :], axis=1)
        own = n < STATE
        if ACCUMULATE:
            dB += tl.load(dB_ptr + at * STATE + n, mask=own, other=0.0)
            dC += tl.load(dC_ptr + at * STATE + n, mask=own, other=0.0)
        tl.store(dB_ptr + at * STATE + n, dB, mask=own)
        tl.store(dC_ptr + at * STATE + n, dC, mask=own)


@no_type_check
@triton.jit(do_not_specialize_on_alignment=UNALIGNED)
def selective_scan_bwd_kernel(
    grad_ptr, u_ptr, delta_ptr, A2_ptr, B_ptr, C_ptr, D_ptr, z_ptr, bias_ptr, starts_ptr,
    order_ptr, states_ptr, adjoints_ptr, du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr,
    parts_ptr, steps, rows, chunks, FIRST_BLOCK: tl.constexpr,
    INNER: tl.constexpr, STATE: tl.constexpr, GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr,
    C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr,
    Z_STRIDE: tl.constexpr, CHUNK: tl.constexpr, GROUP: tl.constexpr,
    WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr, HAS_D: tl.constexpr,
    HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ORDER: tl.constexpr,
    HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr, SOFTPLUS: tl.constexpr, ZOH: tl.constexpr,
    REVERSE: tl.constexpr, NATIVE: tl.constexpr, PDL: tl.constexpr, ACCUMULATE: tl.constexpr,
    HALVES: tl.constexpr, DZ_STRIDE: tl.constexpr,
):  # fmt: skip
    """Walk each chunk backwards, group by group: states anew from a kept one, then adjoints."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = (FIRST_BLOCK + tl.program_id(1)) * C + tl.arange(0, C)
    first = chunk * CHUNK
    count = tl.minimum(CHUNK, steps - first)
    groups = tl.cdiv(count, GROUP)
    SIGN: tl.constexpr = -1 if REVERSE else 1

    tile = n[:, None] * WIDTH + c[None, :]
    A2 = tl.load(A2_ptr + tile)
    D = tl.load(D_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_D else 0.0
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    states_ptr += chunk.to(tl.int64) * (CHUNK // GROUP) * N * WIDTH
    corner = (FIRST_BLOCK + tl.program_id(1)) * C

    (
        grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr, ddelta_ptr, dB_ptr,
        dC_ptr, dz_ptr,
    ) = at_chunk(
        first, steps, grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr,
        ddelta_ptr, dB_ptr, dC_ptr, dz_ptr, GRAD_STRIDE, U_STRIDE, DELTA_STRIDE, B_STRIDE, B_SHIFT,
        C_STRIDE, C_SHIFT, Z_STRIDE, DZ_STRIDE, INNER, STATE, HAS_ORDER, SCATTER, REVERSE,
    )  # fmt: skip
    adjoint = load_adjoint(adjoints_ptr, starts_ptr, chunk, chunks, tile, CHUNK, WIDTH, N, C)
    dA = tl.zeros([N, C], tl.float32)
    dD = tl.zeros([C], tl.float32)
    dbias = tl.zeros([C], tl.float32)

    touched = tl.zeros([8 * GROUP], tl.float32)
    touched_rows = tl.zeros([GROUP * C // 8], tl.float32)
    touched_tile = tl.zeros([N * C // 8], tl.float32)
    for back in range(groups):
        group = (groups - 1 - back) * GROUP
        h = tl.load(states_ptr + (groups - 1 - back) * N * WIDTH + tile)
        starts = load_starts(starts_ptr, first + group, GROUP)
        if (starts == 0) & (group + GROUP <= count):
            t = in_vector_registers(group * SIGN, NATIVE)
            us = load_steps(u_ptr + t * U_STRIDE, c, SIGN * U_STRIDE, INNER, GROUP)
            raws = load_steps(delta_ptr + t * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP)
            grads, zs, slots = load_grads(
                grad_ptr if SCATTER else grad_ptr + t * GRAD_STRIDE,
                z_ptr if HAS_ORDER else z_ptr + t * Z_STRIDE, order_ptr + t, rows, c, SIGN,
                GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, GROUP,
            )  # fmt: skip
            B_here, C_here = B_ptr + t * B_STRIDE, C_ptr + t * C_STRIDE
            dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
            decayed = ()
            for i in tl.static_range(GROUP):
                B = load_states(B_here + i * SIGN * B_STRIDE, n, STATE)
                p, h = advance(h, dts[i], us[i].to(tl.float32), B, A2, ZOH)
                decayed += (p,)
            # The group before comes nearer, if there is one. Not sooner: there are but six counters
            # of loads on their way, so that what this group wants would wait for it as well.
            hold_loads_here()
            sums = load_sums(t, dB_ptr, dC_ptr, SIGN, STATE, ACCUMULATE, HALVES, False, GROUP)
            before = (group - GROUP) * SIGN
            left = tl.where(group > 0, GROUP, 0)
            near = touch(
                B_ptr + before * B_STRIDE, C_ptr + before * C_STRIDE, left, SIGN * B_STRIDE,
                SIGN * C_STRIDE, STATE, GROUP,
            )  # fmt: skip
            if HALVES and ACCUMULATE:
                near_sums = touch(
                    dB_ptr + before * STATE, dC_ptr + before * STATE, left, SIGN * STATE,
                    SIGN * STATE, STATE, GROUP,
                )  # fmt: skip
                near = tl.maximum(near, near_sums)
            near_u = touch_rows(
                u_ptr + before * U_STRIDE, corner, order_ptr, rows, left, U_STRIDE, SIGN, INNER, C,
                False, False, GROUP,
            )  # fmt: skip
            near_delta = touch_rows(
                delta_ptr + before * DELTA_STRIDE, corner, order_ptr, rows, left, DELTA_STRIDE,
                SIGN, INNER, C, False, False, GROUP,
            )  # fmt: skip
            near_grad = touch_rows(
                grad_ptr if SCATTER else grad_ptr + before * GRAD_STRIDE, corner,
                order_ptr + before, rows, left, GRAD_STRIDE, SIGN, INNER, C, SCATTER, False,
                GROUP,
            )  # fmt: skip
            near_z = near_u
            if HAS_Z:
                near_z = touch_rows(
                    z_ptr if HAS_ORDER else z_ptr + before * Z_STRIDE, corner, order_ptr + before,
                    rows, left, Z_STRIDE, SIGN, INNER, C, HAS_ORDER, HAS_SAMPLES, GROUP,
                )  # fmt: skip
            near_tile = touch_tile(
                states_ptr + (tl.maximum(group - GROUP, 0) // GROUP) * N * WIDTH + corner,
                left > 0, WIDTH, N, C,
            )  # fmt: skip
            for i in tl.static_range(GROUP - 1, -1, -1):
                B = load_states(B_here + i * SIGN * B_STRIDE, n, STATE)
                Ct = load_states(C_here + i * SIGN * C_STRIDE, n, STATE)
                # A select that the compiler cannot foresee: else it would keep the exponentials of
                # all steps from above in registers that are not there, instead of taking them anew.
                dt = tl.where(chunks > 0, dts[i], 0.0)
                adjoint, dA, du, draw, dz, dy, g, v, after = step_back(
                    adjoint, dA, decayed[i], h, dt, raws[i], us[i], grads[i], zs[i], B, Ct, A2, D,
                    bias, HAS_Z, SOFTPLUS, ZOH, DECAYED=True,
                )  # fmt: skip
                dD += dy * us[i].to(tl.float32)
                dbias += draw
                at = t + i * SIGN
                dz_row = at
                if SCATTER:
                    dz_row = slots[i].to(tl.int64)
                store_step(
                    at, dz_row, c, n, du, draw, dz, dy, g, v, after, sums[i], du_ptr, ddelta_ptr,
                    dB_ptr, dC_ptr, dz_ptr, INNER, STATE, HAS_Z, ACCUMULATE, HALVES, False,
                    DZ_STRIDE,
                )  # fmt: skip
            touched = tl.maximum(touched, near)
            touched_rows = tl.maximum(touched_rows, tl.maximum(near_u, near_delta))
            touched_rows = tl.maximum(touched_rows, tl.maximum(near_grad, near_z))
            touched_tile = tl.maximum(touched_tile, near_tile)
        else:
            # A group with a start in it, or with an end: step by step, its states anew each time.
            here = tl.minimum(GROUP, count - group)
            for i in range(here - 1, -1, -1):
                t = group * SIGN
                p = walk_to(
                    h, starts, i + 1, u_ptr + t * U_STRIDE, delta_ptr + t * DELTA_STRIDE,
                    B_ptr + t * B_STRIDE, A2, bias, n, c, SIGN * U_STRIDE, SIGN * DELTA_STRIDE,
                    SIGN * B_STRIDE, INNER, STATE, SOFTPLUS, ZOH,
                )[0]  # fmt: skip
                at = (group + i) * SIGN
                u = load_channels(u_ptr + at * U_STRIDE, c, INNER)
                raw = load_channels(delta_ptr + at * DELTA_STRIDE, c, INNER)
                grad, z, slot = load_grads(
                    grad_ptr if SCATTER else grad_ptr + at * GRAD_STRIDE,
                    z_ptr if HAS_ORDER else z_ptr + at * Z_STRIDE, order_ptr + at, rows, c, SIGN,
                    GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, 1,
                )  # fmt: skip
                B = load_states(B_ptr + at * B_STRIDE, n, STATE)
                Ct = load_states(C_ptr + at * C_STRIDE, n, STATE)
                adjoint, dA, du, draw, dz, dy, g, v, after = step_back(
                    adjoint, dA, p, h, step_size(raw, bias, SOFTPLUS), raw, u, grad[0], z[0], B, Ct,
                    A2, D, bias, HAS_Z, SOFTPLUS, ZOH, DECAYED=True,
                )  # fmt: skip
                adjoint = clear_at_start(adjoint, starts, i)
                dD += dy * u.to(tl.float32)
                dbias += draw
                dz_row = at
                if SCATTER:
                    dz_row = slot[0].to(tl.int64)
                sum_here = load_sums(at, dB_ptr, dC_ptr, SIGN, STATE, ACCUMULATE, HALVES, False, 1)
                store_step(
                    at, dz_row, c, n, du, draw, dz, dy, g, v, after, sum_here[0], du_ptr,
                    ddelta_ptr, dB_ptr, dC_ptr, dz_ptr, INNER, STATE, HAS_Z, ACCUMULATE, HALVES,
                    False, DZ_STRIDE,
                )  # fmt: skip
    parts_ptr = store_parts(parts_ptr, chunk, tile, c, dA, dD, dbias, WIDTH, N)
    keep_alive(parts_ptr, touched, steps, 8 * GROUP)
    keep_alive(parts_ptr, touched_rows, steps, GROUP * C // 8)
    keep_alive(parts_ptr, touched_tile, steps, N * C // 8)


@no_type_check
@triton.jit
def finish_bwd_kernel(
    A_ptr, parts_ptr, dBs_ptr, dCs_ptr, dA_ptr, dD_ptr, dbias_ptr, dB_ptr, dC_ptr, chunks,
    entries, A_stride, INNER: tl.constexpr, STATE: tl.constexpr, WIDTH: tl.constexpr,
    N: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    LOG_A: tl.constexpr, HAS_D: tl.constexpr, HAS_BIAS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Sum dA, dD, dbias over the chunks, and dB, dC over the blocks of channels, in fixed order."""
    follow(PDL)
    program = tl.program_id(0)
    SUMS: tl.constexpr = (N + 2) * WIDTH // COLUMNS
    if program < SUMS:
        column = program * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, chunks, ROWS):
            chunk = start + tl.arange(0, ROWS)[:, None]
            part = parts_ptr + chunk.to(tl.int64) * ((N + 2) * WIDTH) + column[None, :]
            total += tl.load(part, mask=chunk < chunks, other=0.0)
        total = tl.sum(total, axis=0)
        n, c = column // WIDTH, column % WIDTH
        own = (n < STATE) & (c < INNER)
        dA = total
        if LOG_A:
            dA *= -tl.exp(tl.load(A_ptr + c * A_stride + n, mask=own, other=0.0))
        tl.store(dA_ptr + c * STATE + n, dA, mask=own)
        if HAS_D:
            tl.store(dD_ptr + c, total, mask=(n == N) & (c < INNER))
        if HAS_BIAS:
            tl.store(dbias_ptr + c, total, mask=(n == N + 1) & (c < INNER))
    else:
        entry = (program - SUMS).to(tl.int64) * (ROWS * COLUMNS) + tl.arange(0, ROWS * COLUMNS)
        dB = tl.zeros([ROWS * COLUMNS], tl.float32)
        dC = tl.zeros([ROWS * COLUMNS], tl.float32)
        for block in tl.static_range(BLOCKS):
            part = block * entries.to(tl.int64) + entry
            dB += tl.load(dBs_ptr + part, mask=entry < entries, other=0.0)
            dC += tl.load(dCs_ptr + part, mask=entry < entries, other=0.0)
        tl.store(dB_ptr + entry, dB, mask=entry < entries)
        tl.store(dC_ptr + entry, dC, mask=entry < entries)

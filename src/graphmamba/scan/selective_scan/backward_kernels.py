"""Triton kernels that walk the packed steps backward and sum what they find.

As in `local_kernels`, every thread has one channel with all its states.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.selective_scan.lane_sums import sum_lanes
from graphmamba.scan.selective_scan.step_kernels import (
    advance,
    clear_at_start,
    keep_alive,
    load_grads,
    load_starts,
    load_states,
    load_steps,
    step_size,
    step_sizes,
    touch,
    touch_rows,
    touch_tile,
    within,
)
from graphmamba.scan.triton_math import LN_2, hold_weight, hold_weight_slope, sigmoid

UNALIGNED = ["A2_ptr", "states_ptr", "adjoints_ptr", "scratch_ptr", "parts_ptr"]


@no_type_check
@triton.jit(do_not_specialize_on_alignment=UNALIGNED)
def selective_scan_bwd_kernel(
    grad_ptr, u_ptr, delta_ptr, A2_ptr, B_ptr, C_ptr, D_ptr, z_ptr, bias_ptr, starts_ptr,
    order_ptr, states_ptr, adjoints_ptr, scratch_ptr, du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr,
    parts_ptr, steps, rows, chunks, first_block,
    INNER: tl.constexpr, STATE: tl.constexpr, GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr,
    C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr,
    Z_STRIDE: tl.constexpr, CHUNK: tl.constexpr, INTERVAL: tl.constexpr, GROUP: tl.constexpr,
    WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr, HAS_D: tl.constexpr,
    HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ORDER: tl.constexpr,
    HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr, SOFTPLUS: tl.constexpr, ZOH: tl.constexpr,
    REVERSE: tl.constexpr, ACCUMULATE: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Walk each chunk backwards, group by group: states anew from a kept one, then adjoints."""
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = (first_block + tl.program_id(1)) * C + tl.arange(0, C)
    first = chunk * CHUNK
    count = tl.minimum(CHUNK, steps - first)
    groups = tl.cdiv(count, GROUP)
    SIGN: tl.constexpr = -1 if REVERSE else 1
    PER_INTERVAL: tl.constexpr = INTERVAL // GROUP

    tile = n[:, None] * WIDTH + c[None, :]
    A2 = tl.load(A2_ptr + tile)
    D = tl.load(D_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_D else 0.0
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    states_ptr += chunk.to(tl.int64) * (CHUNK // INTERVAL) * N * WIDTH
    corner = (first_block + tl.program_id(1)) * C
    program = chunk * tl.num_programs(1) + tl.program_id(1)
    scratch_ptr += program.to(tl.int64) * (PER_INTERVAL * N * C)
    scratch = scratch_ptr + n[:, None] * C + tl.arange(0, C)[None, :]

    base = steps - 1 - first if REVERSE else first
    far = base.to(tl.int64)
    u_ptr += far * U_STRIDE
    delta_ptr += far * DELTA_STRIDE
    B_ptr += far * B_STRIDE + B_SHIFT
    C_ptr += far * C_STRIDE + C_SHIFT
    order_ptr += base
    du_ptr += far * INNER + c
    ddelta_ptr += far * INNER + c
    part = tl.program_id(1).to(tl.int64) * steps
    dB_ptr += (part + far) * STATE
    dC_ptr += (part + far) * STATE
    lane = tl.arange(0, 2 * N)
    if not SCATTER:
        grad_ptr += far * GRAD_STRIDE
        dz_ptr += far * INNER
    if not HAS_ORDER:
        z_ptr += far * Z_STRIDE

    adjoint = tl.zeros([N, C], tl.float32)
    if chunk < chunks - 1:
        adjoint = tl.load(adjoints_ptr + chunk.to(tl.int64) * N * WIDTH + tile)
    dA = tl.zeros([N, C], tl.float32)
    dD = tl.zeros([C], tl.float32)
    dbias = tl.zeros([C], tl.float32)

    touched = tl.zeros([8 * INTERVAL], tl.float32)
    touched_rows = tl.zeros([INTERVAL * C // 8], tl.float32)
    touched_tile = tl.zeros([N * C // 8], tl.float32)
    for back in range(groups):
        group = (groups - 1 - back) * GROUP
        inward = (groups - 1 - back) % PER_INTERVAL
        h = tl.load(states_ptr + (group // INTERVAL) * N * WIDTH + tile)
        if PER_INTERVAL > 1:
            # On entering an interval, walk through it once and note the state before each group.
            if (inward == PER_INTERVAL - 1) | (back == 0):
                for g in range(inward):
                    t = (group + (g - inward) * GROUP) * SIGN
                    starts = load_starts(starts_ptr, first + group + (g - inward) * GROUP, steps)
                    way_us = load_steps(
                        u_ptr + t * U_STRIDE, c, GROUP, SIGN * U_STRIDE, INNER, GROUP
                    )
                    way_raws = load_steps(
                        delta_ptr + t * DELTA_STRIDE, c, GROUP, SIGN * DELTA_STRIDE, INNER, GROUP
                    )
                    for i in tl.static_range(GROUP):
                        B = load_states(B_ptr + t * B_STRIDE, n, i, GROUP, SIGN * B_STRIDE, STATE)
                        dt = step_size(way_raws[i], bias, SOFTPLUS)
                        h = clear_at_start(h, starts, i)
                        _, h = advance(h, dt, way_us[i].to(tl.float32), B, A2, ZOH)
                    tl.store(scratch + (g + 1) * (N * C), h)
                tl.debug_barrier()
            noted = tl.load(scratch + inward * (N * C))
            kept = tl.load(states_ptr + (group // INTERVAL) * N * WIDTH + tile)
            h = tl.where(inward > 0, noted, kept)

        t = group * SIGN
        here = count - group
        us = load_steps(u_ptr + t * U_STRIDE, c, here, SIGN * U_STRIDE, INNER, GROUP)
        raws = load_steps(delta_ptr + t * DELTA_STRIDE, c, here, SIGN * DELTA_STRIDE, INNER, GROUP)
        grads, zs, slots = load_grads(
            grad_ptr if SCATTER else grad_ptr + t * GRAD_STRIDE,
            z_ptr if HAS_ORDER else z_ptr + t * Z_STRIDE, order_ptr + t, rows, c, here, SIGN,
            GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, GROUP,
        )  # fmt: skip
        # At the first group of an interval, the interval before it comes nearer, if there is one.
        before = (group - INTERVAL) * SIGN
        left = tl.where((group > 0) & (inward == 0), INTERVAL, 0)
        near = touch(
            B_ptr + before * B_STRIDE, C_ptr + before * C_STRIDE, left, SIGN * B_STRIDE,
            SIGN * C_STRIDE, STATE, INTERVAL,
        )  # fmt: skip
        near_u = touch_rows(
            u_ptr + before * U_STRIDE, corner, order_ptr, rows, left, U_STRIDE, SIGN, INNER, C,
            False, False, INTERVAL,
        )  # fmt: skip
        near_delta = touch_rows(
            delta_ptr + before * DELTA_STRIDE, corner, order_ptr, rows, left, DELTA_STRIDE, SIGN,
            INNER, C, False, False, INTERVAL,
        )  # fmt: skip
        near_grad = touch_rows(
            grad_ptr if SCATTER else grad_ptr + before * GRAD_STRIDE, corner, order_ptr + before,
            rows, left, GRAD_STRIDE, SIGN, INNER, C, SCATTER, False, INTERVAL,
        )  # fmt: skip
        near_z = near_u
        if HAS_Z:
            near_z = touch_rows(
                z_ptr if HAS_ORDER else z_ptr + before * Z_STRIDE, corner, order_ptr + before,
                rows, left, Z_STRIDE, SIGN, INNER, C, HAS_ORDER, HAS_SAMPLES, INTERVAL,
            )  # fmt: skip
        near_tile = touch_tile(
            states_ptr + (tl.maximum(group - INTERVAL, 0) // INTERVAL) * N * WIDTH + corner,
            left > 0, WIDTH, N, C,
        )  # fmt: skip
        if PER_INTERVAL > 1:
            noted_tile = touch_tile(scratch_ptr + (inward - 1) * (N * C), inward > 1, C, N, C)
            near_tile = tl.maximum(near_tile, noted_tile)

        starts = load_starts(starts_ptr, first + group, steps)
        sizes = step_sizes(raws, bias, SOFTPLUS, GROUP)
        decayed, dts = (), ()
        B_here, C_here = B_ptr + t * B_STRIDE, C_ptr + t * C_STRIDE
        for i in tl.static_range(GROUP):
            B = load_states(B_here, n, i, here, SIGN * B_STRIDE, STATE)
            # Past the last step dt is 0: the state stays, the adjoint passes through unchanged.
            dt = tl.where(within(c, INNER, group + i < count), sizes[i], 0.0)
            h = clear_at_start(h, starts, i)
            p, h = advance(h, dt, us[i].to(tl.float32), B, A2, ZOH)
            decayed, dts = decayed + (p,), dts + (dt,)
        for i in tl.static_range(GROUP - 1, -1, -1):
            valid = group + i < count
            inside = within(c, INNER, valid)
            B = load_states(B_here, n, i, here, SIGN * B_STRIDE, STATE)
            Ct = load_states(C_here, n, i, here, SIGN * C_STRIDE, STATE)
            p, u, dy = decayed[i], us[i].to(tl.float32), grads[i].to(tl.float32)
            # A select that the compiler cannot foresee: else it would keep the exponentials of
            # all steps from above in registers that are not there, instead of taking them anew.
            dt = tl.where(chunks > 0, dts[i], 0.0)
            x = dt[None, :] * A2
            a = tl.exp2(x)
            weight = hold_weight(a, x * LN_2, dt[None, :], A2 * LN_2) if ZOH else dt[None, :]
            v = weight * u[None, :]
            h = p + v * B[:, None]
            if HAS_Z:
                z = zs[i].to(tl.float32)
                gate = sigmoid(z)
                y = tl.sum(h * Ct[:, None], axis=0) + D * u
                dz = dy * y * (gate * (1.0 + z * (1.0 - gate)))
                dz_at = dz_ptr + (t + i * SIGN) * INNER
                if SCATTER:
                    dz_at = dz_ptr + slots[i].to(tl.int64) * INNER
                tl.store(dz_at + c, dz, mask=inside)
                dy *= z * gate

            g = Ct[:, None] * dy[None, :] + adjoint
            gB = g * B[:, None]
            gp = g * p
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
            adjoint = clear_at_start(a * g, starts, i)
            draw = ddt
            if SOFTPLUS:
                draw = ddt * sigmoid(raws[i].to(tl.float32) + bias)
            dD += dy * u
            dbias += tl.where(inside, draw, 0.0)
            tl.store(du_ptr + (t + i * SIGN) * INNER, du + D * dy, mask=inside)
            tl.store(ddelta_ptr + (t + i * SIGN) * INNER, draw, mask=inside)
            at = (t + i * SIGN) * STATE
            if HALVES:
                both = sum_lanes(g * v, h * dy[None, :], n)
                both_ptr = tl.where(lane < N, dB_ptr + lane, dC_ptr + lane - N) + at
                own = within(lane, 2 * N, valid)
                if ACCUMULATE:
                    both += tl.load(both_ptr, mask=own, other=0.0)
                tl.store(both_ptr, both, mask=own)
            else:
                dB = tl.sum(g * v, axis=1)
                dC = tl.sum(h * dy[None, :], axis=1)
                own = within(n, STATE, valid)
                if ACCUMULATE:
                    dB += tl.load(dB_ptr + at + n, mask=own, other=0.0)
                    dC += tl.load(dC_ptr + at + n, mask=own, other=0.0)
                tl.store(dB_ptr + at + n, dB, mask=own)
                tl.store(dC_ptr + at + n, dC, mask=own)
        touched = tl.maximum(touched, near)
        touched_rows = tl.maximum(touched_rows, tl.maximum(near_u, near_delta))
        touched_rows = tl.maximum(touched_rows, tl.maximum(near_grad, near_z))
        touched_tile = tl.maximum(touched_tile, near_tile)
    parts_ptr += chunk.to(tl.int64) * (N + 2) * WIDTH
    tl.store(parts_ptr + tile, dA)
    tl.store(parts_ptr + N * WIDTH + c, dD)
    tl.store(parts_ptr + (N + 1) * WIDTH + c, dbias)
    keep_alive(parts_ptr, touched, steps, 8 * INTERVAL)
    keep_alive(parts_ptr, touched_rows, steps, INTERVAL * C // 8)
    keep_alive(parts_ptr, touched_tile, steps, N * C // 8)


@no_type_check
@triton.jit
def finish_bwd_kernel(
    parts_ptr, dBs_ptr, dCs_ptr, dA_ptr, dD_ptr, dbias_ptr, dB_ptr, dC_ptr, chunks, entries,
    INNER: tl.constexpr, STATE: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr,
    BLOCKS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_D: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Sum dA, dD, dbias over the chunks, and dB, dC over the blocks of channels, in fixed order."""
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
        tl.store(dA_ptr + c * STATE + n, total, mask=(n < STATE) & (c < INNER))
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

"""Triton kernels of the backward pass: one for short inputs, one for sparsely saved states.

The first keeps the states of a group of steps in registers, the second those of HELD steps in
shared memory, so that its backward part is a short loop over single steps. Each thread has one
channel with all its states.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.triton_step_kernels import (
    advance,
    at_chunk,
    by_state,
    clear_at_start,
    fetch,
    follow,
    hold_loads_here,
    in_vector_registers,
    keep_alive,
    load_adjoint,
    load_channels,
    load_grads,
    load_starts,
    load_states,
    load_steps,
    load_swapped,
    put_row,
    put_states,
    room_for_states,
    row_sectors,
    step_size,
    step_sizes,
    store_channels,
    store_parts,
    sum_lanes,
    sum_swapped,
    swapped_states,
    swapped_sums,
    take_row,
    take_states,
    tile_sectors,
    touch,
    touch_rows,
    touch_tile,
    within,
)
from graphmamba.ops.triton_kernels import LN_2, hold_weight, hold_weight_slope, sigmoid

UNALIGNED = ["A2_ptr", "states_ptr", "adjoints_ptr", "parts_ptr"]


@no_type_check
@triton.jit
def walk_to(
    h, starts, count, u_ptr, delta_ptr, B_ptr, A2, bias, n, c, U_STEP: tl.constexpr,
    DELTA_STEP: tl.constexpr, B_STEP: tl.constexpr, INNER: tl.constexpr, STATE: tl.constexpr,
    SOFTPLUS: tl.constexpr, ZOH: tl.constexpr,
):  # fmt: skip
    """Run `count` steps, with starts of sequences; return the last (decayed state, new state)."""
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
    """Backward pass of one step: `before` is the state before the step, `h` after it.

    If DECAYED, `before` is already multiplied by the decay, and `h` is computed from it.

    Returns the adjoint before the step, accumulated dA, the gradients of u, raw delta and gate, dy
    before the gate, and g, v, h: sums of g v and h dy over channels are the gradients of B and C.
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
    """Pointers to the gradients of B, then of C, of one step."""
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
    """Load the sums of other blocks of channels for the gradients of B and C, as a tuple."""
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
    """Backward pass of each chunk, group by group: recompute states from a saved one, go back."""
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
            # Prefetch the group before, if there is one. Not earlier: with only six hardware
            # counters for loads, the loads that this group needs would wait for it as well.
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
                # Always dts[i], but unknown to the compiler: else it would keep the exponentials of
                # all steps in registers and spill them, instead of recomputing them.
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
            # A group with the start of a sequence, or not whole: recompute states for each step.
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
    """Sum dA, dD, dbias over chunks, and dB, dC over blocks of channels, in a fixed order."""
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


ONCE = tl.constexpr(True)  # bypass the L1 cache, of which shared memory leaves little


@no_type_check
@triton.jit
def hold(h, dt, slot, room, scratch, N: tl.constexpr, C: tl.constexpr, SHARED: tl.constexpr):
    """Keep the state before a step, and in shared memory its dt; negative slots are skipped."""
    if SHARED:
        put_states(room, slot, h)
        put_row(room, slot, dt)
    elif slot >= 0:
        tl.store(scratch + slot * (N * C), h)


@no_type_check
@triton.jit
def held(
    slot, raw, bias, room, scratch, N: tl.constexpr, C: tl.constexpr, SOFTPLUS: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Load the state before a step and its dt."""
    if SHARED:
        return take_states(room, slot, N), take_row(room, slot, C)
    return tl.load(scratch + slot * (N * C)), step_size(raw, bias, SOFTPLUS)


@no_type_check
@triton.jit
def load_for_tile(
    ptr, at, n, STATE: tl.constexpr, C: tl.constexpr, VECTOR: tl.constexpr, SHARED: tl.constexpr
):
    """Load B or C of a step, with swapped halves if SHARED."""
    return load_swapped(ptr, at, n, C, VECTOR) if SHARED else load_states(ptr + at, n, STATE)


@no_type_check
@triton.jit
def walk_whole(
    h, begin, piece, room, scratch, u_ptr, delta_ptr, B_ptr, A2, bias, n, c,
    U_STEP: tl.constexpr, DELTA_STEP: tl.constexpr, B_STEP: tl.constexpr, INNER: tl.constexpr,
    STATE: tl.constexpr, GROUP: tl.constexpr, HELD: tl.constexpr, N: tl.constexpr,
    C: tl.constexpr, SOFTPLUS: tl.constexpr, ZOH: tl.constexpr, SHARED: tl.constexpr,
    NATIVE: tl.constexpr, B_VECTOR: tl.constexpr,
):  # fmt: skip
    """Recompute and keep the states of a piece of HELD steps without starts of sequences.

    `begin` is the step of the saved state `h`, at or before `piece`.
    """
    last = piece + HELD - GROUP
    t = in_vector_registers(begin, NATIVE)
    us = load_steps(u_ptr + t * U_STEP, c, U_STEP, INNER, GROUP, ONCE)
    raws = load_steps(delta_ptr + t * DELTA_STEP, c, DELTA_STEP, INNER, GROUP, ONCE)
    touched = touch(B_ptr + t * B_STEP, B_ptr + t * B_STEP, GROUP, B_STEP, B_STEP, STATE, GROUP)
    touching = touched
    for group in range(begin, piece + HELD, GROUP):
        ahead = in_vector_registers(tl.minimum(group + GROUP, last), NATIVE)
        next_us = load_steps(u_ptr + ahead * U_STEP, c, U_STEP, INNER, GROUP, ONCE)
        next_raws = load_steps(delta_ptr + ahead * DELTA_STEP, c, DELTA_STEP, INNER, GROUP, ONCE)
        touched = tl.maximum(touched, touching)
        B_ahead = B_ptr + ahead * B_STEP
        touching = touch(B_ahead, B_ahead, GROUP, B_STEP, B_STEP, STATE, GROUP)
        dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
        B = load_for_tile(B_ptr, t * B_STEP, n, STATE, C, B_VECTOR, SHARED)
        for i in tl.static_range(GROUP):
            following = B_ptr + (i + 1 if i + 1 < GROUP else 0) * B_STEP
            next_B = load_for_tile(following, t * B_STEP, n, STATE, C, B_VECTOR, SHARED)
            hold_loads_here()
            hold(h, dts[i], group - piece + i, room, scratch, N, C, SHARED)
            h = advance(h, dts[i], us[i].to(tl.float32), B, A2, ZOH)[1]
            B = next_B
        us, raws, t = next_us, next_raws, ahead
    return h, tl.maximum(touched, touching)


@no_type_check
@triton.jit
def walk_cut(
    h, begin, piece, end, starts, room, scratch, u_ptr, delta_ptr, B_ptr, A2, bias, n, c,
    U_STEP: tl.constexpr, DELTA_STEP: tl.constexpr, B_STEP: tl.constexpr, INNER: tl.constexpr,
    STATE: tl.constexpr, N: tl.constexpr, C: tl.constexpr, SOFTPLUS: tl.constexpr,
    ZOH: tl.constexpr, SHARED: tl.constexpr, B_VECTOR: tl.constexpr,
):  # fmt: skip
    """Same as `walk_whole` for a piece with starts of sequences or fewer steps."""
    raw = load_channels(delta_ptr + begin * DELTA_STEP, c, INNER)
    u = load_channels(u_ptr + begin * U_STEP, c, INNER)
    B = load_for_tile(B_ptr, begin * B_STEP, n, STATE, C, B_VECTOR, SHARED)
    for step in range(begin, end):
        ahead = tl.minimum(step + 1, end - 1)
        next_raw = load_channels(delta_ptr + ahead * DELTA_STEP, c, INNER)
        next_u = load_channels(u_ptr + ahead * U_STEP, c, INNER)
        next_B = load_for_tile(B_ptr, ahead * B_STEP, n, STATE, C, B_VECTOR, SHARED)
        hold_loads_here()
        dt = step_size(raw, bias, SOFTPLUS)
        hold(h, dt, step - piece, room, scratch, N, C, SHARED)
        h = clear_at_start(h, starts, step - begin)
        h = advance(h, dt, u.to(tl.float32), B, A2, ZOH)[1]
        raw, u, B = next_raw, next_u, next_B
    return h


@no_type_check
@triton.jit
def walk_back(
    adjoint, dA, dD, dbias, h, t, u, raw, grad, z, slot, sums, begin, piece, end, starts, room,
    scratch, grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr, ddelta_ptr,
    dB_ptr, dC_ptr, dz_ptr, steps, rows, A2, D, bias, n, c,
    GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr, DELTA_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr, C_STRIDE: tl.constexpr, Z_STRIDE: tl.constexpr,
    DZ_STRIDE: tl.constexpr, INNER: tl.constexpr, STATE: tl.constexpr, N: tl.constexpr,
    C: tl.constexpr, HAS_Z: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr,
    SCATTER: tl.constexpr, SOFTPLUS: tl.constexpr, ZOH: tl.constexpr, SIGN: tl.constexpr,
    NATIVE: tl.constexpr, ACCUMULATE: tl.constexpr, HALVES: tl.constexpr, B_VECTOR: tl.constexpr,
    C_VECTOR: tl.constexpr, CLEARS: tl.constexpr,
):  # fmt: skip
    """Backward pass of the steps of a piece, with loads one step ahead of the arithmetic."""
    touched = tl.zeros([8], tl.float32)
    touching = touched
    for k in range(end - 1, piece - 1, -1):
        ahead = in_vector_registers(tl.maximum(k - 1, piece) * SIGN, NATIVE)
        next_u = load_channels(u_ptr, c, INNER, ONCE, ahead * U_STRIDE)
        next_raw = load_channels(delta_ptr, c, INNER, ONCE, ahead * DELTA_STRIDE)
        next_grad, next_z, next_slot = load_grads(
            grad_ptr, z_ptr, order_ptr + ahead, rows, c, SIGN, GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z,
            HAS_ORDER, HAS_SAMPLES, SCATTER, 1, ONCE, ahead,
        )  # fmt: skip
        touched = tl.maximum(touched, touching)
        touching = touch(
            B_ptr + ahead * B_STRIDE, C_ptr + ahead * C_STRIDE, 1, B_STRIDE, C_STRIDE, STATE, 1
        )
        next_sums = load_sums(ahead, dB_ptr, dC_ptr, SIGN, STATE, ACCUMULATE, HALVES, HALVES, 1)
        # Always true, but unknown to the compiler: loads before a branch have their own hardware
        # counter, so nothing in this step waits for them.
        if steps + k > 0:
            B = load_for_tile(B_ptr, t * B_STRIDE, n, STATE, C, B_VECTOR, HALVES)
            Ct = load_for_tile(C_ptr, t * C_STRIDE, n, STATE, C, C_VECTOR, HALVES)
            # States are needed late in a step, so the loads above are issued first.
            hold_loads_here()
            before, dt = held(k - piece, raw, bias, room, scratch, N, C, SOFTPLUS, HALVES)
            own = before
            if CLEARS:
                # `before` is the final state of the previous sequence; this one starts from zero.
                own = clear_at_start(before, starts, k - begin)
            adjoint, dA, du, draw, dz, dy, g, v, after = step_back(
                adjoint, dA, own, h, dt, raw, u, grad[0], z[0], B, Ct, A2, D, bias, HAS_Z, SOFTPLUS,
                ZOH, DECAYED=False,
            )  # fmt: skip
            if CLEARS:
                adjoint = clear_at_start(adjoint, starts, k - begin)
            dD += dy * u.to(tl.float32)
            dbias += draw
            dz_row = t
            if SCATTER:
                dz_row = slot[0].to(tl.int64)
            store_step(
                t, dz_row, c, n, du, draw, dz, dy, g, v, after, sums[0], du_ptr, ddelta_ptr, dB_ptr,
                dC_ptr, dz_ptr, INNER, STATE, HAS_Z, ACCUMULATE, HALVES, HALVES, DZ_STRIDE,
            )  # fmt: skip
            h = before
        u, raw, grad, z, slot, sums, t = (
            next_u, next_raw, next_grad, next_z, next_slot, next_sums, ahead
        )  # fmt: skip
    return adjoint, dA, dD, dbias, tl.maximum(touched, touching)


@no_type_check
@triton.jit
def fetch_piece(
    piece, corner, rows, grad_ptr, u_ptr, delta_ptr, z_ptr, order_ptr, GRAD_STRIDE: tl.constexpr,
    U_STRIDE: tl.constexpr, DELTA_STRIDE: tl.constexpr, Z_STRIDE: tl.constexpr,
    SIGN: tl.constexpr, INNER: tl.constexpr, C: tl.constexpr, HELD: tl.constexpr,
    HAS_Z: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr,
    SCATTER: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Prefetch grad and z of a piece, and u and delta, which are needed earlier, of the one before.

    Either piece may not exist. Rows gathered by `order` are not prefetched.
    """
    left, left_before = tl.where(piece >= 0, HELD, 0), tl.where(piece >= HELD, HELD, 0)
    t = piece * SIGN
    before = t - HELD * SIGN
    u_at, is_there = row_sectors(
        u_ptr + before * U_STRIDE, corner, order_ptr, rows, left_before, U_STRIDE, SIGN, INNER, C,
        False, False, HELD,
    )  # fmt: skip
    fetch(u_at, is_there, NATIVE)
    delta_at, is_there = row_sectors(
        delta_ptr + before * DELTA_STRIDE, corner, order_ptr, rows, left_before, DELTA_STRIDE, SIGN,
        INNER, C, False, False, HELD,
    )  # fmt: skip
    fetch(delta_at, is_there, NATIVE)
    if not SCATTER:
        grad_at, is_there = row_sectors(
            grad_ptr + t * GRAD_STRIDE, corner, order_ptr, rows, left, GRAD_STRIDE, SIGN, INNER, C,
            False, False, HELD,
        )  # fmt: skip
        fetch(grad_at, is_there, NATIVE)
    if HAS_Z and not HAS_ORDER:
        z_at, is_there = row_sectors(
            z_ptr + t * Z_STRIDE, corner, order_ptr, rows, left, Z_STRIDE, SIGN, INNER, C, False,
            False, HELD,
        )  # fmt: skip
        fetch(z_at, is_there, NATIVE)


@no_type_check
@triton.jit
def fetch_sums(
    piece, dB_ptr, dC_ptr, STATE: tl.constexpr, SIGN: tl.constexpr, HELD: tl.constexpr,
    NATIVE: tl.constexpr,
):  # fmt: skip
    """Prefetch the sums of other blocks of channels for a piece, if it exists."""
    SECTORS: tl.constexpr = STATE // 8
    lane = tl.arange(0, 2 * HELD * SECTORS)
    step, sector = lane // SECTORS % HELD, lane % SECTORS
    at = (piece + step) * SIGN * STATE + sector * 8
    where = tl.where(lane < HELD * SECTORS, dB_ptr + at, dC_ptr + at)
    fetch(where, within(lane, 2 * HELD * SECTORS, piece >= 0), NATIVE)


@no_type_check
@triton.jit(do_not_specialize_on_alignment=[*UNALIGNED, "scratch_ptr"])
def sparse_scan_bwd_kernel(
    grad_ptr, u_ptr, delta_ptr, A2_ptr, B_ptr, C_ptr, D_ptr, z_ptr, bias_ptr, starts_ptr,
    order_ptr, states_ptr, adjoints_ptr, du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr,
    parts_ptr, steps, rows, chunks, scratch_ptr, FIRST_BLOCK: tl.constexpr,
    INNER: tl.constexpr, STATE: tl.constexpr, GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr,
    C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr,
    Z_STRIDE: tl.constexpr, CHUNK: tl.constexpr, INTERVAL: tl.constexpr, GROUP: tl.constexpr,
    HELD: tl.constexpr,
    WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr, HAS_D: tl.constexpr,
    HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ORDER: tl.constexpr,
    HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr, SOFTPLUS: tl.constexpr, ZOH: tl.constexpr,
    REVERSE: tl.constexpr, NATIVE: tl.constexpr, PDL: tl.constexpr, ACCUMULATE: tl.constexpr,
    HALVES: tl.constexpr, DZ_STRIDE: tl.constexpr, B_VECTOR: tl.constexpr, C_VECTOR: tl.constexpr,
):  # fmt: skip
    """Backward pass of each chunk, piece by piece: recompute states from a saved one, go back."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = (FIRST_BLOCK + tl.program_id(1)) * C + tl.arange(0, C)
    first = chunk * CHUNK
    count = tl.minimum(CHUNK, steps - first)
    pieces = tl.cdiv(count, HELD)
    SIGN: tl.constexpr = -1 if REVERSE else 1
    U_STEP: tl.constexpr = SIGN * U_STRIDE
    DELTA_STEP: tl.constexpr = SIGN * DELTA_STRIDE
    B_STEP: tl.constexpr = SIGN * B_STRIDE
    C_STEP: tl.constexpr = SIGN * C_STRIDE

    state = n[:, None]
    if HALVES:
        state = swapped_states(n, C)
    tile = state * WIDTH + c[None, :]
    A2 = tl.load(A2_ptr + tile)
    D = tl.load(D_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_D else 0.0
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    states_ptr += chunk.to(tl.int64) * (CHUNK // INTERVAL) * N * WIDTH
    corner = (FIRST_BLOCK + tl.program_id(1)) * C
    program = chunk * tl.num_programs(1) + tl.program_id(1)
    scratch = scratch_ptr + n[:, None] * C + tl.arange(0, C)[None, :]
    room = 0
    if HALVES:
        room = room_for_states(chunk, C)
    else:
        scratch += program.to(tl.int64) * (HELD * N * C)

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
    touched_steps = tl.zeros([8], tl.float32)
    for back in range(pieces):
        piece = (pieces - 1 - back) * HELD
        begin = piece // INTERVAL * INTERVAL
        end = tl.minimum(piece + HELD, count)
        kept = states_ptr + (piece // INTERVAL) * N * WIDTH + tile
        h = tl.load(kept, cache_modifier=".cg" if ONCE else "")
        starts = load_starts(starts_ptr, first + begin, INTERVAL)
        # The rows of the last step are loaded while the states are recomputed.
        t = in_vector_registers((end - 1) * SIGN, NATIVE)
        u = load_channels(u_ptr + t * U_STRIDE, c, INNER, ONCE)
        raw = load_channels(delta_ptr + t * DELTA_STRIDE, c, INNER, ONCE)
        grad, z, slot = load_grads(
            grad_ptr if SCATTER else grad_ptr + t * GRAD_STRIDE,
            z_ptr if HAS_ORDER else z_ptr + t * Z_STRIDE, order_ptr + t, rows, c, SIGN,
            GRAD_STRIDE, Z_STRIDE, INNER, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, 1,
            ONCE,
        )  # fmt: skip
        sums = load_sums(t, dB_ptr, dC_ptr, SIGN, STATE, ACCUMULATE, HALVES, HALVES, 1)
        if (starts == 0) & (end == piece + HELD):
            h, near = walk_whole(
                h, begin, piece, room, scratch, u_ptr, delta_ptr, B_ptr, A2, bias, n, c, U_STEP,
                DELTA_STEP, B_STEP, INNER, STATE, GROUP, HELD, N, C, SOFTPLUS, ZOH, HALVES, NATIVE,
                B_VECTOR,
            )  # fmt: skip
            if not HALVES:
                tl.debug_barrier()
            # Prefetch the next pieces: every second one is recomputed from a state one piece
            # earlier, whose rows are needed as well.
            next_begin = tl.maximum(piece - HELD, 0) // INTERVAL * INTERVAL
            left = tl.where(piece > 0, GROUP, 0)
            near_B = touch(
                B_ptr + next_begin * B_STEP, C_ptr + (end - 1) * C_STEP, left, B_STEP, -C_STEP,
                STATE, GROUP,
            )  # fmt: skip
            fetch_piece(
                piece - HELD, corner, rows, grad_ptr, u_ptr, delta_ptr, z_ptr, order_ptr,
                GRAD_STRIDE, U_STRIDE, DELTA_STRIDE, Z_STRIDE, SIGN, INNER, C, HELD, HAS_Z,
                HAS_ORDER, HAS_SAMPLES, SCATTER, NATIVE,
            )  # fmt: skip
            kept_before, is_there = tile_sectors(
                states_ptr + (next_begin // INTERVAL) * N * WIDTH + corner, piece > 0, WIDTH, N, C
            )
            fetch(kept_before, is_there, NATIVE)
            if HALVES and ACCUMULATE:
                fetch_sums(piece - HELD, dB_ptr, dC_ptr, STATE, SIGN, HELD, NATIVE)
            adjoint, dA, dD, dbias, near_steps = walk_back(
                adjoint, dA, dD, dbias, h, t, u, raw, grad, z, slot, sums, begin, piece, end,
                starts, room, scratch, grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr,
                du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr, steps, rows, A2, D, bias, n, c,
                GRAD_STRIDE, U_STRIDE, DELTA_STRIDE, B_STRIDE, C_STRIDE, Z_STRIDE, DZ_STRIDE, INNER,
                STATE, N, C, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, SOFTPLUS, ZOH, SIGN, NATIVE,
                ACCUMULATE, HALVES, B_VECTOR, C_VECTOR, CLEARS=False,
            )  # fmt: skip
            touched_steps = tl.maximum(touched_steps, near_steps)
            touched = tl.maximum(touched, near)
            touched = tl.maximum(touched, near_B)
        else:
            h = walk_cut(
                h, begin, piece, end, starts, room, scratch, u_ptr, delta_ptr, B_ptr, A2, bias, n,
                c, U_STEP, DELTA_STEP, B_STEP, INNER, STATE, N, C, SOFTPLUS, ZOH, HALVES,
                B_VECTOR,
            )  # fmt: skip
            if not HALVES:
                tl.debug_barrier()
            adjoint, dA, dD, dbias, near_steps = walk_back(
                adjoint, dA, dD, dbias, h, t, u, raw, grad, z, slot, sums, begin, piece, end,
                starts, room, scratch, grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr,
                du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr, steps, rows, A2, D, bias, n, c,
                GRAD_STRIDE, U_STRIDE, DELTA_STRIDE, B_STRIDE, C_STRIDE, Z_STRIDE, DZ_STRIDE, INNER,
                STATE, N, C, HAS_Z, HAS_ORDER, HAS_SAMPLES, SCATTER, SOFTPLUS, ZOH, SIGN, NATIVE,
                ACCUMULATE, HALVES, B_VECTOR, C_VECTOR, CLEARS=True,
            )  # fmt: skip
            touched_steps = tl.maximum(touched_steps, near_steps)
    parts_ptr = store_parts(parts_ptr, chunk, tile, c, dA, dD, dbias, WIDTH, N)
    keep_alive(parts_ptr, touched, steps, 8 * GROUP)
    keep_alive(parts_ptr, touched_steps, steps, 8)

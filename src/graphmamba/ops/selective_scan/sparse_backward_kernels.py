"""The backward kernel where states are kept far apart: of an interval, HELD steps at a time.

As in `local_kernels`, every thread has one channel with all its states. The states before the
steps in hand lie in shared memory, so that the walk back is a short loop over single steps.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.backward_kernels import (
    UNALIGNED,
    load_sums,
    step_back,
    store_step,
)
from graphmamba.ops.selective_scan.chunk_kernels import at_chunk, load_adjoint, store_parts
from graphmamba.ops.selective_scan.held_states import (
    put_row,
    put_states,
    room_for_states,
    take_row,
    take_states,
)
from graphmamba.ops.selective_scan.step_kernels import (
    advance,
    clear_at_start,
    fetch,
    follow,
    hold_loads_here,
    in_vector_registers,
    keep_alive,
    load_channels,
    load_grads,
    load_starts,
    load_states,
    load_steps,
    row_sectors,
    step_size,
    step_sizes,
    tile_sectors,
    touch,
    within,
)
from graphmamba.ops.selective_scan.swapped_states import load_swapped, swapped_states

ONCE = tl.constexpr(True)
"""Whether rows and states are read past the first cache, which held states make small."""


@no_type_check
@triton.jit
def hold(h, dt, slot, room, scratch, N: tl.constexpr, C: tl.constexpr, SHARED: tl.constexpr):
    """Hold the state before a step, and dt where that is cheaper than to take it anew.

    Steps before the first that is wanted have slots below 0.
    """
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
    """Return the state before a step and its dt."""
    if SHARED:
        return take_states(room, slot, N), take_row(room, slot, C)
    return tl.load(scratch + slot * (N * C)), step_size(raw, bias, SOFTPLUS)


@no_type_check
@triton.jit
def load_for_tile(
    ptr, at, n, STATE: tl.constexpr, C: tl.constexpr, VECTOR: tl.constexpr, SHARED: tl.constexpr
):
    """Load B or C of a step, for swapped states where these are shared."""
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
    """Walk from `begin` to the end of a whole piece without starts, and hold its states."""
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
    """Walk to the end of a piece likewise, where there are starts or steps are missing."""
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
    """Take the adjoint back through the steps of a piece, rows one step ahead of the arithmetic."""
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
        # Always so, but the compiler cannot foresee it: what is loaded ahead of a branch has a
        # counter of its own, and nothing in this step waits for it.
        if steps + k > 0:
            B = load_for_tile(B_ptr, t * B_STRIDE, n, STATE, C, B_VECTOR, HALVES)
            Ct = load_for_tile(C_ptr, t * C_STRIDE, n, STATE, C, C_VECTOR, HALVES)
            # Held states are wanted late in a step, so that the loads above are early in it.
            hold_loads_here()
            before, dt = held(k - piece, raw, bias, room, scratch, N, C, SOFTPLUS, HALVES)
            own = before
            if CLEARS:
                # The sequence before ends with what is held, this one starts from zero.
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
    """Let the rows of a piece come nearer; of those of u and delta, which go ahead, the one before.

    Neither piece need exist. Rows that are gathered come when they are wanted.
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
    """Let what other blocks of channels have left for a piece come nearer, if it exists."""
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
    """Walk each chunk backwards, piece by piece: states anew from a kept one, then adjoints."""
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
        # The rows of the last step are on their way while the piece is walked.
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
            # What is wanted next comes nearer in the meantime. Every other walk begins a piece
            # early, so that rows of the piece after the next come as well.
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

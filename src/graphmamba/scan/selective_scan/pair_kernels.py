"""The Triton kernel that walks long packed sequences backward, two threads to a channel.

It does what `backward_kernels` does, but a thread has 8 states of a channel instead of 16, in half
the registers, so that twice as many warps share a scheduler and wait at the same time. What there
is to do once for a channel and a step, loads, step sizes, gates and stores, is done by one of its
two threads: half 0 owns the even steps of a group, half 1 the odd ones.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.selective_scan.pair_lanes import (
    OWN,
    give,
    halve,
    halve_products,
    load_own,
    load_tile,
    store_tile,
)
from graphmamba.scan.selective_scan.step_kernels import (
    clear_at_start,
    fills_blocks,
    follow,
    hold_loads_here,
    load_starts,
    step_size,
    within,
)
from graphmamba.scan.triton_math import LN_2, sigmoid

UNALIGNED = ["A2_ptr", "states_ptr", "adjoints_ptr", "scratch_ptr", "parts_ptr"]
NUMBERS = ["steps", "rows", "chunks", "first_block"]
"""Not compiled anew for: it takes seconds, and blocks of channels are counted from 0."""


@no_type_check
@triton.jit
def load_lanes(ptr, c, INNER: tl.constexpr):
    """Load a value for each thread; only a block that reaches past the last channel has a mask."""
    if fills_blocks(INNER, 16):
        return tl.load(ptr)
    return tl.load(ptr, mask=c < INNER, other=0.0)


@no_type_check
@triton.jit
def store_lanes(ptr, c, values, INNER: tl.constexpr):
    """Store a value for each thread, likewise."""
    if fills_blocks(INNER, 16):
        tl.store(ptr, values)
    else:
        tl.store(ptr, values, mask=c < INNER)


@no_type_check
@triton.jit
def load_owned(ptr, c, STEP: tl.constexpr, INNER: tl.constexpr, COUNT: tl.constexpr):
    """Load the steps of a group that each thread owns, from its pointer on, as a tuple."""
    values = ()
    for j in tl.static_range(COUNT // 2):
        values += (load_lanes(ptr + 2 * j * STEP, c, INNER),)
    return values


@no_type_check
@triton.jit
def share(owned, thread, COUNT: tl.constexpr, NATIVE: tl.constexpr):
    """Give what the owners of COUNT steps have to both threads of a channel, as a tuple."""
    values = ()
    for i in tl.static_range(COUNT):
        values += (give(owned[i // 2], thread, i % 2, NATIVE),)
    return values


@no_type_check
@triton.jit
def sizes_and_inputs(
    raws, us, bias, thread, SOFTPLUS: tl.constexpr, COUNT: tl.constexpr, NATIVE: tl.constexpr
):
    """Return dt, and dt u, of COUNT steps for both threads of a channel."""
    dts, vs = (), ()
    for j in tl.static_range(COUNT // 2):
        dt = step_size(raws[j], bias, SOFTPLUS)
        dts += (dt,)
        vs += (dt * us[j].to(tl.float32),)
    return share(dts, thread, COUNT, NATIVE), share(vs, thread, COUNT, NATIVE)


@no_type_check
@triton.jit
def advance_own(h, dt, v, B, A2):
    """Return (decayed states, new states) after one step from the states `h`."""
    decayed, new = (), ()
    for k in tl.static_range(OWN):
        p = tl.exp2(dt * A2[k]) * h[k]
        decayed += (p,)
        new += (p + v * B[k],)
    return decayed, new


@no_type_check
@triton.jit
def clear_own(h, starts, i):
    """Put the states to zero where a sequence starts."""
    values = ()
    for k in tl.static_range(OWN):
        values += (clear_at_start(h[k], starts, i),)
    return values


@no_type_check
@triton.jit
def walk_own(
    h, starts, count, u_ptr, delta_ptr, B_ptr, A2, bias, c, U_STEP: tl.constexpr,
    DELTA_STEP: tl.constexpr, B_STEP: tl.constexpr, INNER: tl.constexpr, SOFTPLUS: tl.constexpr,
    WIDE: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """Return (decayed states, new states) of the last of `count` steps, among them starts."""
    p = h
    for i in range(count):
        dt = step_size(load_lanes(delta_ptr + i * DELTA_STEP, c, INNER), bias, SOFTPLUS)
        v = dt * load_lanes(u_ptr + i * U_STEP, c, INNER).to(tl.float32)
        B = load_own(B_ptr + i * B_STEP, WIDE, NATIVE)
        p, h = advance_own(clear_own(h, starts, i), dt, v, B, A2)
    return p, h


@no_type_check
@triton.jit
def step_back_own(adjoint, dA, p, dt, v, dy, B, Ct, A2, thread, NATIVE: tl.constexpr):
    """Take the adjoint from behind a step to before it.

    Returns it, dA so far, the sums over a thread's states of C h, of g B and of A2 g p, and the
    sums over the channels of g v (8 gradients of B) and of h dy (8 of C), one in each thread.
    """
    before, new_dA, found = (), (), ()
    y, sum_gB, sum_Agp = tl.zeros_like(dt), tl.zeros_like(dt), tl.zeros_like(dt)
    for k in tl.static_range(OWN):
        h = p[k] + v * B[k]
        y += h * Ct[k]
        g = Ct[k] * dy + adjoint[k]
        sum_gB += g * B[k]
        gp = g * p[k]
        new_dA += (dA[k] + dt * gp,)
        sum_Agp += A2[k] * gp
        before += (tl.exp2(dt * A2[k]) * g,)
        found += (halve_products(g, v, h, dy, thread, 8, NATIVE),)
        # Neighbours are joined as soon as they are there, so that few wait in registers.
        if k % 2 == 1:
            found = found[:-2] + (halve(found[-2], found[-1], thread, 1, NATIVE),)
        if k % 4 == 3:
            found = found[:-2] + (halve(found[-2], found[-1], thread, 2, NATIVE),)
        if k % 8 == 7:
            found = found[:-2] + (halve(found[-2], found[-1], thread, 4, NATIVE),)
    return before, new_dA, y, sum_gB, sum_Agp, found[0]


@no_type_check
@triton.jit
def through_gate_both(grad, z, HAS_Z: tl.constexpr):
    """Return the gradient before the gate, and what y is multiplied by in that of the gate."""
    grad = grad.to(tl.float32)
    if not HAS_Z:
        return grad, grad
    z = z.to(tl.float32)
    gate = sigmoid(z)
    return grad * (z * gate), grad * (gate * (1.0 + z * (1.0 - gate)))


@no_type_check
@triton.jit
def choose(inward, third, second, first, zeroth):
    """Choose what is touched by how far a group is inside its interval."""
    early = tl.where(inward == 3, third, second)
    return tl.where(inward >= 2, early, tl.where(inward == 1, first, zeroth))


@no_type_check
@triton.jit
def touch(ptr, place, is_near):
    """Read a value by each thread, so that the cache sectors there come near."""
    return tl.load(ptr + place, mask=is_near, other=0.0).to(tl.float32)


@no_type_check
@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=UNALIGNED)
def pair_bwd_kernel(
    grad_ptr, u_ptr, delta_ptr, A2_ptr, B_ptr, C_ptr, D_ptr, z_ptr, bias_ptr, starts_ptr,
    order_ptr, states_ptr, adjoints_ptr, scratch_ptr, du_ptr, ddelta_ptr, dB_ptr, dC_ptr, dz_ptr,
    parts_ptr, steps, rows, chunks, first_block,
    INNER: tl.constexpr, STATE: tl.constexpr, GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr,
    C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr,
    Z_STRIDE: tl.constexpr, CHUNK: tl.constexpr, INTERVAL: tl.constexpr, GROUP: tl.constexpr,
    WIDTH: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr,
    SOFTPLUS: tl.constexpr, REVERSE: tl.constexpr, NATIVE: tl.constexpr, PDL: tl.constexpr,
    ACCUMULATE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Walk each chunk backwards, group by group: states anew from a kept one, then adjoints."""
    follow(PDL)
    N: tl.constexpr = 2 * OWN
    C: tl.constexpr = 16
    SIGN: tl.constexpr = -1 if REVERSE else 1
    PER_INTERVAL: tl.constexpr = INTERVAL // GROUP
    chunk = tl.program_id(0)
    corner = (first_block + tl.program_id(1)) * C
    half = tl.arange(0, 2)[:, None] + tl.zeros([2, C], tl.int32)
    lane = tl.arange(0, C)[None, :] + tl.zeros([2, C], tl.int32)
    thread = half * C + lane
    c = corner + lane
    first = chunk * CHUNK
    count = tl.minimum(CHUNK, steps - first)
    groups = tl.cdiv(count, GROUP)

    tile = half * (OWN * WIDTH) + c
    A2 = load_tile(A2_ptr + tile, WIDTH, NATIVE)
    D, bias = tl.zeros([2, C], tl.float32), tl.zeros([2, C], tl.float32)
    if HAS_D:
        D = load_lanes(D_ptr + c, c, INNER).to(tl.float32)
    if HAS_BIAS:
        bias = load_lanes(bias_ptr + c, c, INNER).to(tl.float32)
    first_state = chunk * (CHUNK // INTERVAL)
    program = chunk * tl.num_programs(1) + tl.program_id(1)
    note = program * (PER_INTERVAL * N * C) + half * (OWN * C) + lane

    # Places are counted in 32 bits from the fixed pointers, so that no thread has to keep a pointer
    # of 64 bits for each array.
    base = steps - 1 - first if REVERSE else first
    part = tl.program_id(1) * steps
    # Where `step_back_own` leaves its sums: of B in threads without the bit 8, and of the state
    # that the three lower bits say.
    sums_ptr = tl.where(lane < OWN, dB_ptr, dC_ptr)
    own_sum = part * STATE + half * OWN + lane % OWN

    dA = ()
    for _ in tl.static_range(OWN):
        dA += (tl.zeros([2, C], tl.float32),)
    # Where the next chunk begins with a start, nothing comes back from it, nor was written.
    is_behind = chunk < chunks - 1
    if is_behind:
        is_behind = load_starts(starts_ptr, first + CHUNK, 1) == 0
    adjoint = dA
    if is_behind:
        adjoint = load_tile(adjoints_ptr + (chunk * (N * WIDTH) + tile), WIDTH, NATIVE)
    dD = tl.zeros([2, C], tl.float32)
    dbias = tl.zeros([2, C], tl.float32)

    touched = tl.zeros([2, C], tl.float32)
    for back in range(groups):
        group = (groups - 1 - back) * GROUP
        inward = (groups - 1 - back) % PER_INTERVAL
        if PER_INTERVAL > 1:
            # On entering an interval, walk through it once and note the state before each group.
            if (inward > 0) & ((inward == PER_INTERVAL - 1) | (back == 0)):
                kept = (first_state + group // INTERVAL) * (N * WIDTH) + tile
                h = load_tile(states_ptr + kept, WIDTH, NATIVE)
                begin = group - inward * GROUP
                for g in range(inward):
                    tau = begin + g * GROUP
                    way = base + tau * SIGN
                    B_way = B_ptr + (way * B_STRIDE + B_SHIFT + half * OWN)
                    way_starts = load_starts(starts_ptr, first + tau, GROUP)
                    if way_starts == 0:
                        own = way + half * SIGN
                        us = load_owned(
                            u_ptr + (own * U_STRIDE + c), c, SIGN * U_STRIDE, INNER, GROUP
                        )
                        raws = load_owned(
                            delta_ptr + (own * DELTA_STRIDE + c), c, SIGN * DELTA_STRIDE, INNER,
                            GROUP,
                        )  # fmt: skip
                        B = load_own(B_way, WIDE, NATIVE)
                        hold_loads_here()
                        dts, vs = sizes_and_inputs(raws, us, bias, thread, SOFTPLUS, GROUP, NATIVE)
                        for i in tl.static_range(GROUP):
                            B_next = B_way + (i + 1) * SIGN * B_STRIDE
                            next_B = load_own(B_next, WIDE, NATIVE) if i + 1 < GROUP else B
                            hold_loads_here()
                            h = advance_own(h, dts[i], vs[i], B, A2)[1]
                            B = next_B
                    else:
                        # GROUP of them, but in a loop.
                        many = tl.minimum(GROUP, count - tau)
                        h = walk_own(
                            h, way_starts, many, u_ptr + (way * U_STRIDE + c),
                            delta_ptr + (way * DELTA_STRIDE + c), B_way, A2, bias, c,
                            SIGN * U_STRIDE, SIGN * DELTA_STRIDE, SIGN * B_STRIDE, INNER, SOFTPLUS,
                            WIDE, NATIVE,
                        )[1]  # fmt: skip
                    store_tile(scratch_ptr + (note + (g + 1) * (N * C)), h, C, NATIVE)
                tl.debug_barrier()
        if inward > 0:
            h = load_tile(scratch_ptr + (note + inward * (N * C)), C, NATIVE)
        else:
            kept = (first_state + group // INTERVAL) * (N * WIDTH) + tile
            h = load_tile(states_ptr + kept, WIDTH, NATIVE)

        starts = load_starts(starts_ptr, first + group, GROUP)
        if (starts == 0) & (group + GROUP <= count):
            t = base + group * SIGN
            own = t + half * SIGN
            us = load_owned(u_ptr + (own * U_STRIDE + c), c, SIGN * U_STRIDE, INNER, GROUP)
            raws = load_owned(
                delta_ptr + (own * DELTA_STRIDE + c), c, SIGN * DELTA_STRIDE, INNER, GROUP
            )
            slots = ()
            if HAS_ORDER:
                for j in tl.static_range(GROUP // 2):
                    slots += (tl.load(order_ptr + own + 2 * j * SIGN).to(tl.int32),)
            if SCATTER:
                grads = ()
                for j in tl.static_range(GROUP // 2):
                    grads += (load_lanes(grad_ptr + (slots[j] * GRAD_STRIDE + c), c, INNER),)
            else:
                grads = load_owned(
                    grad_ptr + (own * GRAD_STRIDE + c), c, SIGN * GRAD_STRIDE, INNER, GROUP
                )
            zs = grads
            if HAS_Z and HAS_ORDER:
                zs = ()
                for j in tl.static_range(GROUP // 2):
                    row = slots[j] % rows if HAS_SAMPLES else slots[j]
                    zs += (load_lanes(z_ptr + (row * Z_STRIDE + c), c, INNER),)
            elif HAS_Z:
                zs = load_owned(z_ptr + (own * Z_STRIDE + c), c, SIGN * Z_STRIDE, INNER, GROUP)
            B_here = B_ptr + (t * B_STRIDE + B_SHIFT + half * OWN)
            C_here = C_ptr + (t * C_STRIDE + C_SHIFT + half * OWN)
            sums_here = sums_ptr + (t * STATE + own_sum)
            sums = ()
            for i in tl.static_range(GROUP):
                if ACCUMULATE:
                    sums += (tl.load(sums_here + i * SIGN * STATE),)
                else:
                    sums += (0.0,)
            dts, vs = sizes_and_inputs(raws, us, bias, thread, SOFTPLUS, GROUP, NATIVE)
            decayed = ()
            for i in tl.static_range(GROUP):
                B = load_own(B_here + i * SIGN * B_STRIDE, WIDE, NATIVE)
                p, h = advance_own(h, dts[i], vs[i], B, A2)
                decayed += (p,)
            own_dys, slopes = (), ()
            for j in tl.static_range(GROUP // 2):
                dy, slope = through_gate_both(grads[j], zs[j], HAS_Z)
                own_dys += (dy,)
                slopes += (slope,)
            hold_loads_here()
            near_row, near_state = touched, touched
            if PER_INTERVAL == 4:
                # The interval before this one comes nearer, a fourth of it with each group: few
                # registers wait for it. Not sooner: there are but six counters of loads on their
                # way, so that what this group wants would have to wait for it as well.
                step, sector = thread // 2, thread % 2 * 8
                before = base + (group - inward * GROUP - INTERVAL + step) * SIGN
                near = tl.where(group >= INTERVAL, INTERVAL, 0)
                grad_row, z_row = before, before
                if HAS_ORDER:
                    z_row = tl.load(order_ptr + before, mask=step < near, other=0).to(tl.int32)
                    if SCATTER:
                        grad_row = z_row
                    if HAS_SAMPLES:
                        z_row = z_row % rows
                near_row = touch(
                    choose(inward, u_ptr, delta_ptr, grad_ptr, z_ptr),
                    choose(inward, before * U_STRIDE, before * DELTA_STRIDE,
                           grad_row * GRAD_STRIDE, z_row * Z_STRIDE) + corner + sector,
                    corner + sector < tl.where(step < near, INNER, 0),
                )  # fmt: skip
                kept = (first_state + group // INTERVAL - 1) * (N * WIDTH)
                near_state = touch(
                    choose(inward, B_ptr, states_ptr, C_ptr, C_ptr),
                    choose(inward, before * B_STRIDE + B_SHIFT, kept + step * WIDTH + corner,
                           before * C_STRIDE + C_SHIFT, before * C_STRIDE + C_SHIFT) + sector,
                    step < tl.where(inward > 0, near, 0),
                )  # fmt: skip
            for j in tl.static_range(GROUP // 2 - 1, -1, -1):
                ys, sums_gB, sums_Agp = (), (), ()
                for i in tl.static_range(2 * j + 1, 2 * j - 1, -1):
                    B = load_own(B_here + i * SIGN * B_STRIDE, WIDE, NATIVE)
                    Ct = load_own(C_here + i * SIGN * C_STRIDE, WIDE, NATIVE)
                    # A select that the compiler cannot foresee: else it would keep the exponentials
                    # of all steps from above in registers that are not there.
                    dt = tl.where(chunks > 0, dts[i], 0.0)
                    dy = give(own_dys[j], thread, i % 2, NATIVE)
                    adjoint, dA, y, sum_gB, sum_Agp, found = step_back_own(
                        adjoint, dA, decayed[i], dt, vs[i], dy, B, Ct, A2, thread, NATIVE
                    )
                    ys, sums_gB, sums_Agp = (y,) + ys, (sum_gB,) + sums_gB, (sum_Agp,) + sums_Agp
                    tl.store(sums_here + i * SIGN * STATE, found + sums[i])
                # What is left of both steps is done by their owners, side by side.
                y = halve(ys[0], ys[1], thread, 16, NATIVE)
                sum_gB = halve(sums_gB[0], sums_gB[1], thread, 16, NATIVE)
                sum_Agp = halve(sums_Agp[0], sums_Agp[1], thread, 16, NATIVE)
                own_dt = tl.where(half == 0, dts[2 * j], dts[2 * j + 1])
                u = us[j].to(tl.float32)
                draw = LN_2 * sum_Agp + u * sum_gB
                if SOFTPLUS:
                    draw *= sigmoid(raws[j].to(tl.float32) + bias)
                dD += own_dys[j] * u
                dbias += draw
                at = own + 2 * j * SIGN
                store_lanes(du_ptr + (at * INNER + c), c, own_dt * sum_gB + D * own_dys[j], INNER)
                store_lanes(ddelta_ptr + (at * INNER + c), c, draw, INNER)
                if HAS_Z:
                    dz_row = at
                    if SCATTER:
                        dz_row = slots[j]
                    store_lanes(dz_ptr + (dz_row * INNER + c), c, slopes[j] * (y + D * u), INNER)
            touched = tl.maximum(touched, tl.maximum(near_row, near_state))
        else:
            # A group with a start in it, or with an end: step by step, its states anew each time.
            here = tl.minimum(GROUP, count - group)
            for i in range(here - 1, -1, -1):
                t = base + group * SIGN
                p = walk_own(
                    h, starts, i + 1, u_ptr + (t * U_STRIDE + c),
                    delta_ptr + (t * DELTA_STRIDE + c),
                    B_ptr + (t * B_STRIDE + B_SHIFT + half * OWN), A2, bias, c, SIGN * U_STRIDE,
                    SIGN * DELTA_STRIDE, SIGN * B_STRIDE, INNER, SOFTPLUS, WIDE, NATIVE,
                )[0]  # fmt: skip
                place = base + (group + i) * SIGN
                u = load_lanes(u_ptr + (place * U_STRIDE + c), c, INNER).to(tl.float32)
                raw = load_lanes(delta_ptr + (place * DELTA_STRIDE + c), c, INNER)
                in_row, gate_row = place, place
                if HAS_ORDER:
                    slot = tl.load(order_ptr + place).to(tl.int32)
                    gate_row = slot % rows if HAS_SAMPLES else slot
                    if SCATTER:
                        in_row = slot
                grad = load_lanes(grad_ptr + (in_row * GRAD_STRIDE + c), c, INNER)
                z = grad
                if HAS_Z:
                    z = load_lanes(z_ptr + (gate_row * Z_STRIDE + c), c, INNER)
                dy, slope = through_gate_both(grad, z, HAS_Z)
                dt = step_size(raw, bias, SOFTPLUS)
                adjoint, dA, y, sum_gB, sum_Agp, found = step_back_own(
                    adjoint, dA, p, dt, dt * u, dy,
                    load_own(B_ptr + (place * B_STRIDE + B_SHIFT + half * OWN), WIDE, NATIVE),
                    load_own(C_ptr + (place * C_STRIDE + C_SHIFT + half * OWN), WIDE, NATIVE),
                    A2, thread, NATIVE,
                )  # fmt: skip
                adjoint = clear_own(adjoint, starts, i)
                if ACCUMULATE:
                    found += tl.load(sums_ptr + (place * STATE + own_sum))
                tl.store(sums_ptr + (place * STATE + own_sum), found)
                # Both threads find the same, and half 0 counts it.
                y = halve(y, y, thread, 16, NATIVE)
                sum_gB = halve(sum_gB, sum_gB, thread, 16, NATIVE)
                draw = LN_2 * halve(sum_Agp, sum_Agp, thread, 16, NATIVE) + u * sum_gB
                if SOFTPLUS:
                    draw *= sigmoid(raw.to(tl.float32) + bias)
                dD += tl.where(half == 0, dy * u, 0.0)
                dbias += tl.where(half == 0, draw, 0.0)
                store_lanes(du_ptr + (place * INNER + c), c, dt * sum_gB + D * dy, INNER)
                store_lanes(ddelta_ptr + (place * INNER + c), c, draw, INNER)
                if HAS_Z:
                    store_lanes(dz_ptr + (in_row * INNER + c), c, slope * (y + D * u), INNER)
    found_part = chunk * ((N + 2) * WIDTH)
    store_tile(parts_ptr + (found_part + tile), dA, WIDTH, NATIVE)
    total = halve(dD, dbias, thread, 16, NATIVE)
    tl.store(parts_ptr + (found_part + (N + half) * WIDTH + c), total)
    # A store that never happens; else the compiler drops the loads of what is touched.
    tl.store(parts_ptr + thread, touched, mask=within(thread, 2 * C, steps < 0))

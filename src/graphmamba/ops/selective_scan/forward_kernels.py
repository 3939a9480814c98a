"""The Triton kernel that walks the packed steps and writes the output.

As in `local_kernels`, every thread has one channel with all its states.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.step_kernels import (
    advance,
    clear_at_start,
    follow,
    hold_loads_here,
    keep_alive,
    load_channels,
    load_rows,
    load_slots,
    load_starts,
    load_states,
    load_steps,
    row_of,
    step_size,
    step_sizes,
    store_channels,
    touch,
    within,
)
from graphmamba.ops.triton_math import sigmoid


@no_type_check
@triton.jit
def gated_output(h, Ct, D, u, z, HAS_Z: tl.constexpr):
    """Return what one step puts out."""
    y = tl.sum(h * Ct[:, None], axis=0) + D * u
    if HAS_Z:
        z = z.to(tl.float32)
        y *= z * sigmoid(z)
    return y


@no_type_check
@triton.jit(do_not_specialize_on_alignment=["A2_ptr", "states_ptr"])
def selective_scan_fwd_kernel(
    u_ptr, delta_ptr, A2_ptr, B_ptr, C_ptr, D_ptr, z_ptr, bias_ptr, starts_ptr, order_ptr,
    states_ptr, y_ptr, steps, rows,
    INNER: tl.constexpr, STATE: tl.constexpr, U_STRIDE: tl.constexpr, DELTA_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr, C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr,
    Z_STRIDE: tl.constexpr, CHUNK: tl.constexpr,
    INTERVAL: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr,
    C: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr,
    SOFTPLUS: tl.constexpr, ZOH: tl.constexpr, REVERSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Walk each chunk from the state it is entered with; keep a state every INTERVAL steps."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    first = chunk * CHUNK
    count = tl.minimum(CHUNK, steps - first)

    tile = n[:, None] * WIDTH + c[None, :]
    A2 = tl.load(A2_ptr + tile)
    D = tl.load(D_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_D else 0.0
    bias = tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32) if HAS_BIAS else 0.0
    states_ptr += chunk.to(tl.int64) * (CHUNK // INTERVAL) * N * WIDTH + tile
    # The first chunk is entered by nobody: it starts with a sequence.
    h = tl.load(states_ptr, mask=within(tile, N * WIDTH, chunk > 0), other=0.0)

    SIGN: tl.constexpr = -1 if REVERSE else 1
    base = steps - 1 - first if REVERSE else first
    far = base.to(tl.int64)
    u_ptr += far * U_STRIDE
    delta_ptr += far * DELTA_STRIDE
    B_ptr += far * B_STRIDE + B_SHIFT
    C_ptr += far * C_STRIDE + C_SHIFT
    order_ptr += base
    if not HAS_ORDER:
        z_ptr += far * Z_STRIDE
    if not SCATTER:
        y_ptr += far * INNER

    # Loads run a group ahead of the arithmetic, which then hides them; the order, which says what
    # to load, runs two groups ahead. What is loaded for a group that is not whole is not used: it
    # lies within the packed steps all the same.
    last = count - GROUP
    here = tl.minimum(0, last) * SIGN
    us = load_steps(u_ptr + here * U_STRIDE, c, SIGN * U_STRIDE, INNER, GROUP)
    raws = load_steps(delta_ptr + here * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP)
    starts = load_starts(starts_ptr, first, GROUP)
    B_here, C_here = B_ptr + here * B_STRIDE, C_ptr + here * C_STRIDE
    touching = touch(B_here, C_here, GROUP, SIGN * B_STRIDE, SIGN * C_STRIDE, STATE, GROUP)
    touched = touching
    slots, next_slots, zs = (), (), us
    if HAS_ORDER:
        slots = load_slots(order_ptr + here, SIGN, GROUP)
        next_slots = load_slots(order_ptr + tl.minimum(GROUP, last) * SIGN, SIGN, GROUP)
    if HAS_Z and HAS_ORDER:
        zs = load_rows(z_ptr, slots, rows, c, Z_STRIDE, INNER, HAS_SAMPLES, GROUP)
    elif HAS_Z:
        zs = load_steps(z_ptr + here * Z_STRIDE, c, SIGN * Z_STRIDE, INNER, GROUP)
    B = load_states(B_here, n, STATE)
    for group in range(0, count, GROUP):
        next_group = tl.minimum(group + GROUP, last)
        ahead = next_group * SIGN
        next_us = load_steps(u_ptr + ahead * U_STRIDE, c, SIGN * U_STRIDE, INNER, GROUP)
        next_raws = load_steps(
            delta_ptr + ahead * DELTA_STRIDE, c, SIGN * DELTA_STRIDE, INNER, GROUP
        )
        next_starts = load_starts(starts_ptr, first + tl.minimum(group + GROUP, count - 1), GROUP)
        next_zs, last_slots = next_us, next_slots
        if HAS_Z and HAS_ORDER:
            next_zs = load_rows(z_ptr, next_slots, rows, c, Z_STRIDE, INNER, HAS_SAMPLES, GROUP)
        elif HAS_Z:
            next_zs = load_steps(z_ptr + ahead * Z_STRIDE, c, SIGN * Z_STRIDE, INNER, GROUP)
        if HAS_ORDER:
            last_slots = load_slots(
                order_ptr + tl.minimum(group + 2 * GROUP, last) * SIGN, SIGN, GROUP
            )
        touched = tl.maximum(touched, touching)
        B_ahead, C_ahead = B_ptr + ahead * B_STRIDE, C_ptr + ahead * C_STRIDE
        touching = touch(B_ahead, C_ahead, GROUP, SIGN * B_STRIDE, SIGN * C_STRIDE, STATE, GROUP)

        if INTERVAL == GROUP:
            tl.store(states_ptr + (group // INTERVAL) * N * WIDTH, h)
        elif INTERVAL < CHUNK:
            if group % INTERVAL == 0:
                tl.store(states_ptr + (group // INTERVAL) * N * WIDTH, h)
        y_here = y_ptr
        if not SCATTER:
            y_here = y_ptr + group * SIGN * INNER
        if (starts == 0) & (group <= last):
            dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
            for i in tl.static_range(GROUP):
                Ct = load_states(C_here + i * SIGN * C_STRIDE, n, STATE)
                B_next = B_here + (i + 1) * SIGN * B_STRIDE if i + 1 < GROUP else B_ahead
                next_B = load_states(B_next, n, STATE)
                hold_loads_here()
                u = us[i].to(tl.float32)
                h = advance(h, dts[i], u, B, A2, ZOH)[1]
                y = gated_output(h, Ct, D, u, zs[i], HAS_Z)
                at = y_here + i * SIGN * INNER
                if SCATTER:
                    at = y_here + slots[i].to(tl.int64) * INNER
                store_channels(at, c, y, INNER)
                B = next_B
        else:
            # A group with a start in it, or with an end: step by step.
            for i in range(tl.minimum(GROUP, count - group)):
                t = (group + i) * SIGN
                u = load_channels(u_ptr + t * U_STRIDE, c, INNER).to(tl.float32)
                dt = step_size(
                    load_channels(delta_ptr + t * DELTA_STRIDE, c, INNER), bias, SOFTPLUS
                )
                Bt = load_states(B_ptr + t * B_STRIDE, n, STATE)
                Ct = load_states(C_ptr + t * C_STRIDE, n, STATE)
                z, at = u, y_ptr + t * INNER
                if HAS_ORDER:
                    slot = tl.load(order_ptr + t)
                    z_here = z_ptr + row_of(slot, rows, HAS_SAMPLES) * Z_STRIDE
                    at = y_ptr + (slot.to(tl.int64) if SCATTER else t) * INNER
                else:
                    z_here = z_ptr + t * Z_STRIDE
                if HAS_Z:
                    z = load_channels(z_here, c, INNER)
                h = advance(clear_at_start(h, starts, i), dt, u, Bt, A2, ZOH)[1]
                store_channels(at, c, gated_output(h, Ct, D, u, z, HAS_Z), INNER)
            B = load_states(B_ahead, n, STATE)
        us, raws, starts, zs = next_us, next_raws, next_starts, next_zs
        slots, next_slots, B_here, C_here = next_slots, last_slots, B_ahead, C_ahead
    keep_alive(y_ptr, touched, steps, 8 * GROUP)

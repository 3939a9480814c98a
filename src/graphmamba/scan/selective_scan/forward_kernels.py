"""The Triton kernel that walks the packed steps and writes the output.

As in `local_kernels`, every thread has one channel with all its states.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.selective_scan.step_kernels import (
    advance,
    clear_at_start,
    hold_loads_here,
    keep_alive,
    load_rows,
    load_slots,
    load_starts,
    load_states,
    load_steps,
    step_sizes,
    touch,
    within,
)
from graphmamba.scan.triton_math import sigmoid


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
    SOFTPLUS: tl.constexpr, ZOH: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Walk each chunk from the state it is entered with; keep a state every INTERVAL steps."""
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
    # to load, runs two groups ahead.
    us = load_steps(u_ptr, c, count, SIGN * U_STRIDE, INNER, GROUP)
    raws = load_steps(delta_ptr, c, count, SIGN * DELTA_STRIDE, INNER, GROUP)
    starts = load_starts(starts_ptr, first, steps)
    touching = touch(B_ptr, C_ptr, count, SIGN * B_STRIDE, SIGN * C_STRIDE, STATE, GROUP)
    touched = touching
    slots, next_slots, zs = (), (), us
    if HAS_ORDER:
        slots = load_slots(order_ptr, count, SIGN, GROUP)
        next_slots = load_slots(order_ptr + GROUP * SIGN, count - GROUP, SIGN, GROUP)
    if HAS_Z and HAS_ORDER:
        zs = load_rows(z_ptr, slots, rows, c, count, Z_STRIDE, INNER, HAS_SAMPLES, GROUP)
    elif HAS_Z:
        zs = load_steps(z_ptr, c, count, SIGN * Z_STRIDE, INNER, GROUP)
    B = load_states(B_ptr, n, 0, count, SIGN * B_STRIDE, STATE)
    for group in range(0, count, GROUP):
        left = count - group - GROUP
        ahead = (group + GROUP) * SIGN
        next_us = load_steps(u_ptr + ahead * U_STRIDE, c, left, SIGN * U_STRIDE, INNER, GROUP)
        next_raws = load_steps(
            delta_ptr + ahead * DELTA_STRIDE, c, left, SIGN * DELTA_STRIDE, INNER, GROUP
        )
        next_starts = load_starts(starts_ptr, first + group + GROUP, steps)
        next_zs, last_slots = next_us, next_slots
        if HAS_Z and HAS_ORDER:
            next_zs = load_rows(
                z_ptr, next_slots, rows, c, left, Z_STRIDE, INNER, HAS_SAMPLES, GROUP
            )
        elif HAS_Z:
            next_zs = load_steps(z_ptr + ahead * Z_STRIDE, c, left, SIGN * Z_STRIDE, INNER, GROUP)
        if HAS_ORDER:
            last_slots = load_slots(order_ptr + ahead + GROUP * SIGN, left - GROUP, SIGN, GROUP)
        touched = tl.maximum(touched, touching)
        far_B, far_C = B_ptr + GROUP * SIGN * B_STRIDE, C_ptr + GROUP * SIGN * C_STRIDE
        touching = touch(far_B, far_C, left, SIGN * B_STRIDE, SIGN * C_STRIDE, STATE, GROUP)

        if INTERVAL < CHUNK:
            if group % INTERVAL == 0:
                tl.store(states_ptr + (group // INTERVAL) * N * WIDTH, h)
        dts = step_sizes(raws, bias, SOFTPLUS, GROUP)
        for i in tl.static_range(GROUP):
            valid = group + i < count
            Ct = load_states(C_ptr, n, i, count - group, SIGN * C_STRIDE, STATE)
            next_B = load_states(B_ptr, n, i + 1, count - group, SIGN * B_STRIDE, STATE)
            hold_loads_here()
            u = us[i].to(tl.float32)
            h = clear_at_start(h, starts, i)
            _, h = advance(h, dts[i], u, B, A2, ZOH)
            y = tl.sum(h * Ct[:, None], axis=0) + D * u
            if HAS_Z:
                gate = zs[i].to(tl.float32)
                y *= gate * sigmoid(gate)
            out = y_ptr + (group + i) * SIGN * INNER
            if SCATTER:
                out = y_ptr + slots[i].to(tl.int64) * INNER
            tl.store(out + c, y, mask=within(c, INNER, valid))
            B = next_B
        us, raws, starts, zs = next_us, next_raws, next_starts, next_zs
        slots, next_slots, B_ptr, C_ptr = next_slots, last_slots, far_B, far_C
    keep_alive(y_ptr, touched, steps, 8 * GROUP)

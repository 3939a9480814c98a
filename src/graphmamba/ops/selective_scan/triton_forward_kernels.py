"""Triton kernels of the forward pass, and of the states that chunks pass on in both passes.

Pointers to states are not specialised on alignment: with loads of one word, Triton assigns each
thread one channel with all its states, so sums over states need no exchange between threads.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.triton_step_kernels import (
    advance,
    clear_at_start,
    follow,
    hold_loads_here,
    keep_alive,
    load_channels,
    load_grads,
    load_rows,
    load_slots,
    load_starts,
    load_states,
    load_steps,
    row_of,
    starts_in_chunk,
    step_size,
    step_sizes,
    store_channels,
    through_gate,
    touch,
    within,
)
from graphmamba.ops.triton_kernels import LOG2_E, sigmoid


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
    """Final state of each chunk but the last, for an initial state of zero."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    # Only steps after the last start in the chunk affect its final state.
    place, is_start = starts_in_chunk(starts_ptr, chunk, steps, CHUNK)
    last_start = tl.max(tl.where(is_start, place, -1))
    tl.store(keeps_ptr + chunk, (last_start < 0).to(tl.int8), mask=tl.program_id(1) == 0)
    begin = tl.maximum(last_start, 0)
    # Steps before the first whole group run one by one.
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

    # Loads are one group ahead of the arithmetic, which hides them; the last group is loaded twice.
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
        # Always true, but unknown to the compiler: loads before a branch have their own hardware
        # counter, so nothing in this group waits for them.
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
    """Gradient of the initial state of a chunk from the outputs of that chunk alone."""
    follow(PDL)
    chunk, n = tl.program_id(0), tl.arange(0, N)
    c = tl.program_id(1) * C + tl.arange(0, C)
    first = chunk * CHUNK
    # Only steps before the first start in the chunk depend on its initial state.
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
    # Loads are one group ahead; the last group is loaded twice.
    whole = count // GROUP * GROUP
    # A short last chunk has no whole group: these loads then start before it and are not used.
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
        # As above: separates the counters of loads.
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


@no_type_check
@triton.jit
def either(a, b):
    """Bitwise or, for `tl.reduce`."""
    return a | b


@no_type_check
@triton.jit
def prepare_kernel(
    cu_seqlens_ptr, A_ptr, starts_ptr, A2_ptr, boundaries, steps, inner, state, A_stride, blocks,
    words, WIDTH: tl.constexpr, N: tl.constexpr, WORDS: tl.constexpr, LOG_A: tl.constexpr,
    REVERSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the bits of steps that start a sequence, and log2(e) A, transposed and padded."""
    follow(PDL)
    program = tl.program_id(0)
    BLOCK: tl.constexpr = 32 * WORDS
    lane = tl.arange(0, BLOCK)
    if program < blocks:
        # Boundaries in this block of steps have values from `low` to `high`.
        tau = program * BLOCK
        low = steps - tau - BLOCK + 1 if REVERSE else tau
        high = steps - tau if REVERSE else tau + BLOCK - 1
        # Find the first of them by a BLOCK-ary search.
        first, span = 0, boundaries
        while span > 0:
            stride = (span + BLOCK - 1) // BLOCK
            pivot = first + lane * stride
            is_there = pivot < tl.minimum(first + span, boundaries)
            value = tl.load(cu_seqlens_ptr + pivot, mask=is_there, other=0).to(tl.int32)
            below = tl.sum((is_there & (value < low)).to(tl.int32))
            first = tl.where(below > 0, first + (below - 1) * stride + 1, first)
            span = tl.where(below > 0, stride - 1, 0)
        word = tl.arange(0, WORDS)
        bits = tl.zeros([WORDS], tl.int32)
        is_open = first < boundaries
        while is_open:
            value = tl.load(
                cu_seqlens_ptr + first + lane, mask=first + lane < boundaries, other=high + 1
            ).to(tl.int32)
            at = (steps - value if REVERSE else value) - tau
            is_here = (value >= low) & (value <= high) & (at + tau < steps)
            bit = tl.where(is_here, 1 << (at % 32), 0)
            mine = tl.where(at[:, None] // 32 == word[None, :], bit[:, None], 0)  # [BLOCK, WORDS]
            bits |= tl.reduce(mine, 0, either)
            first += BLOCK
            is_open = (first < boundaries) & (tl.max(value) <= high)
        tl.store(starts_ptr + tau // 32 + word, bits, mask=tau // 32 + word < words)
    else:
        flat = (program - blocks) * BLOCK + lane
        n, c = flat // WIDTH, flat % WIDTH
        valid = (n < state) & (c < inner)
        A = tl.load(A_ptr + c * A_stride + n, mask=valid, other=0.0).to(tl.float32)
        if LOG_A:
            A = -tl.exp(A)
        tl.store(A2_ptr + flat, A * LOG2_E, mask=flat < N * WIDTH)


@no_type_check
@triton.jit
def load_links(
    ends_ptr, sums_ptr, keeps_ptr, there, sign, left, tile, WIDTH: tl.constexpr, N: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Load COUNT links from chunk `there` on, as three tuples; those past `left` are 0."""
    locals_, totals, keeps = (), (), ()
    for i in tl.static_range(COUNT):
        at = (there + i * sign).to(tl.int64)
        own = within(tile, N * WIDTH, i < left)
        locals_ += (tl.load(ends_ptr + at * N * WIDTH + tile, mask=own, other=0.0),)
        # Loaded in the layout of the tile, to avoid a layout conversion.
        totals += (tl.load(sums_ptr + at * WIDTH + tile % WIDTH, mask=own, other=0.0),)
        keeps += (tl.load(keeps_ptr + at, mask=i < left, other=0),)
    return locals_, totals, keeps


@no_type_check
@triton.jit
def carry_kernel(
    A2_ptr, ends_ptr, sums_ptr, keeps_ptr, enter_ptr, cu_seqlens_ptr, sequences, steps, chunks,
    enter_stride, CHUNK: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    AHEAD: tl.constexpr, BY_SEQUENCE: tl.constexpr, REVERSE: tl.constexpr, BACKWARD: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Pass states from chunk to chunk, or adjoints in the opposite direction if BACKWARD.

    With BY_SEQUENCE, a program runs over the chunks that overlap a sequence. Otherwise one program
    runs over all chunks, and states pass only those with `keeps`.
    """
    follow(PDL)
    c = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.arange(0, N)[:, None] * WIDTH + c[None, :]
    sign = -1 if BACKWARD else 1
    A2 = tl.load(A2_ptr + tile)
    for sequence in range(tl.program_id(0), sequences, tl.num_programs(0)):
        first, last = 0, chunks - 1
        if BY_SEQUENCE:
            begin = tl.load(cu_seqlens_ptr + sequence).to(tl.int32)
            end = tl.load(cu_seqlens_ptr + sequence + 1).to(tl.int32)
            first = (steps - end if REVERSE else begin) // CHUNK
            last = (steps - begin - 1 if REVERSE else end - 1) // CHUNK
        here = last if BACKWARD else first
        passed = last - first
        if passed > 0:
            h = tl.load(ends_ptr + here.to(tl.int64) * N * WIDTH + tile)
            next_ptr = enter_ptr + (here + sign).to(tl.int64) * enter_stride + tile
            tl.store(next_ptr, h)
            # Links are loaded one group ahead.
            locals_, totals, keeps = load_links(
                ends_ptr, sums_ptr, keeps_ptr, here + sign, sign, passed - 1, tile, WIDTH, N, AHEAD
            )
            for gone in range(1, passed, AHEAD):
                next_locals, next_totals, next_keeps = load_links(
                    ends_ptr, sums_ptr, keeps_ptr, here + (gone + AHEAD) * sign, sign,
                    passed - gone - AHEAD, tile, WIDTH, N, AHEAD,
                )  # fmt: skip
                for i in tl.static_range(AHEAD):
                    h = tl.exp2(A2 * totals[i]) * h
                    if not BY_SEQUENCE:
                        h = tl.where(keeps[i] != 0, h, 0.0)
                    h += locals_[i]
                    own = within(tile, N * WIDTH, gone + i < passed)
                    tl.store(
                        next_ptr + ((gone + i) * sign).to(tl.int64) * enter_stride, h, mask=own
                    )
                locals_, totals, keeps = next_locals, next_totals, next_keeps


@no_type_check
@triton.jit
def segment_kernel(
    A2_ptr, ends_ptr, sums_ptr, keeps_ptr, enter_ptr, enter_stride,
    segment_ends_ptr, segment_sums_ptr, segment_keeps_ptr, segment_enter_ptr, chunks,
    WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr, SEGMENT: tl.constexpr,
    AHEAD: tl.constexpr, BACKWARD: tl.constexpr, FOLDS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Run a long carry over chunks as segments in parallel.

    With FOLDS, each segment is reduced to a single link, for `carry_kernel` to run over segments;
    then each segment passes on states from its initial state.
    """
    follow(PDL)
    segment = tl.program_id(0)
    c = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.arange(0, N)[:, None] * WIDTH + c[None, :]
    A2 = tl.load(A2_ptr + tile)
    # Folded segments are numbered like chunks, so `carry_kernel` backward starts with the last.
    number = tl.cdiv(chunks, SEGMENT) - 1 - segment if BACKWARD else segment
    room = number.to(tl.int64) * N * WIDTH + tile
    h = tl.zeros([N, C], tl.float32)
    if not FOLDS and segment > 0:
        h = tl.load(segment_enter_ptr + room)
    total = tl.zeros([N, C], tl.float32)
    passes = segment >= 0
    sign = -1 if BACKWARD else 1
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, chunks - 1), AHEAD):
        here = chunks - 1 - start if BACKWARD else start
        # Only the last segment, which passes nothing on, has links past the end.
        locals_, totals, keeps = load_links(
            ends_ptr, sums_ptr, keeps_ptr, here, sign, chunks - 1 - start, tile, WIDTH, N, AHEAD
        )
        for i in tl.static_range(AHEAD):
            h = tl.where(keeps[i] != 0, tl.exp2(A2 * totals[i]) * h, 0.0) + locals_[i]
            total += totals[i]
            passes = passes & (keeps[i] != 0)
            if not FOLDS:
                there = (here + (i + 1) * sign).to(tl.int64)
                own = within(tile, N * WIDTH, start + i < chunks - 1)
                tl.store(enter_ptr + there * enter_stride + tile, h, mask=own)
    if FOLDS:
        tl.store(segment_ends_ptr + room, h)
        tl.store(segment_sums_ptr + number * WIDTH + tile % WIDTH, total, mask=tile < WIDTH)
        tl.store(segment_keeps_ptr + number, passes.to(tl.int8), mask=tl.program_id(1) == 0)


@no_type_check
@triton.jit
def gated_output(h, Ct, D, u, z, HAS_Z: tl.constexpr):
    """Output of one step."""
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
    """Scan each chunk from its initial state; save a state every INTERVAL steps."""
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
    # The first chunk starts with a sequence.
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

    # Loads are one group ahead of the arithmetic, which hides them; `order` is two groups ahead.
    # Loads for a group that is not whole are not used, but stay within the packed steps.
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
            # A group with the start of a sequence, or not whole: step by step.
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

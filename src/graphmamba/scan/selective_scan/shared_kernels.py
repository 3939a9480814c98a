"""What the forward and the backward kernels of the selective scan share; README.md derives it.

The packed axis is cut into chunks of CHUNK steps, blind to where sequences start: at a start the
state is put to zero on the way. Step `tau` counts in walking order; its place in memory is
`steps - 1 - tau` when REVERSE. A tile is [N, C]: N states by C channels, walked by one warp.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.triton_math import LN_2, LOG2_E, hold_weight, softplus


@no_type_check
@triton.jit
def either(a, b):
    """Join two words of bits."""
    return a | b


@no_type_check
@triton.jit
def prepare_kernel(
    cu_seqlens_ptr, A_ptr, starts_ptr, A2_ptr, boundaries, steps, inner, state, A_stride, blocks,
    WIDTH: tl.constexpr, N: tl.constexpr, WORDS: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Mark the steps that start a sequence, a bit each; lay out log2(e) A, transposed and padded."""
    program = tl.program_id(0)
    BLOCK: tl.constexpr = 32 * WORDS
    lane = tl.arange(0, BLOCK)
    if program < blocks:
        # The boundaries that concern this block of steps lie from `low` to `high`.
        tau = program * BLOCK
        low = steps - tau - BLOCK + 1 if REVERSE else tau
        high = steps - tau if REVERSE else tau + BLOCK - 1
        # The first of them, by a search with BLOCK branches.
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
        tl.store(starts_ptr + tau // 32 + word, bits, mask=tau + word * 32 < steps)
    else:
        flat = (program - blocks) * BLOCK + lane
        n, c = flat // WIDTH, flat % WIDTH
        valid = (n < state) & (c < inner)
        A = tl.load(A_ptr + c * A_stride + n, mask=valid, other=0.0).to(tl.float32)
        tl.store(A2_ptr + flat, A * LOG2_E, mask=flat < N * WIDTH)


@no_type_check
@triton.jit
def carry_kernel(
    A2_ptr, ends_ptr, sums_ptr, keeps_ptr, enter_ptr, chunks, enter_stride,
    WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr, AHEAD: tl.constexpr,
    BACKWARD: tl.constexpr,
):  # fmt: skip
    """Pass states from chunk to chunk, in time (forward) or against it (adjoints).

    A program walks from a chunk with a start in it until the next such chunk; the others leave.
    `link` counts along the walk: chunk `link` forward, chunk `chunks - 1 - link` backward.
    """
    link = tl.program_id(0)
    here = chunks - 1 - link if BACKWARD else link
    if (link == 0) | (tl.load(keeps_ptr + here) == 0):
        c = tl.program_id(1) * C + tl.arange(0, C)
        tile = tl.arange(0, N)[:, None] * WIDTH + c[None, :]
        sign = -1 if BACKWARD else 1
        A2 = tl.load(A2_ptr + tile)
        h = tl.load(ends_ptr + here.to(tl.int64) * N * WIDTH + tile)
        next_ptr = enter_ptr + (here + sign).to(tl.int64) * enter_stride + tile
        tl.store(next_ptr, h)
        walks = link + 1 < chunks - 1
        start = link + 1
        while walks:
            locals_, totals, keeps = (), (), ()
            for i in tl.static_range(AHEAD):
                there = here + (start - link + i) * sign
                exists = start + i < chunks - 1
                at = there.to(tl.int64) * N * WIDTH + tile
                local = tl.load(ends_ptr + at, mask=within(tile, N * WIDTH, exists))
                total = tl.load(sums_ptr + there * WIDTH + c, mask=within(c, WIDTH, exists))
                keep = tl.load(keeps_ptr + there, mask=exists, other=0)
                locals_, totals, keeps = locals_ + (local,), totals + (total,), keeps + (keep,)
            for i in tl.static_range(AHEAD):
                walks = walks & (keeps[i] != 0)
                h = tl.exp2(A2 * totals[i][None, :]) * h + locals_[i]
                step = ((start - link + i) * sign).to(tl.int64)
                tl.store(next_ptr + step * enter_stride, h, mask=within(tile, N * WIDTH, walks))
            start += AHEAD


@no_type_check
@triton.jit
def segment_kernel(
    A2_ptr, ends_ptr, sums_ptr, keeps_ptr, enter_ptr, enter_stride,
    segment_ends_ptr, segment_sums_ptr, segment_keeps_ptr, segment_enter_ptr, chunks,
    WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr, SEGMENT: tl.constexpr,
    AHEAD: tl.constexpr, BACKWARD: tl.constexpr, FOLDS: tl.constexpr,
):  # fmt: skip
    """Cut a long walk over chunks into segments that are walked side by side.

    First each is folded into what it would pass on if it were entered with zero, and `carry_kernel`
    carries that from segment to segment; then each is walked again from what it is entered with.
    """
    segment = tl.program_id(0)
    c = tl.program_id(1) * C + tl.arange(0, C)
    tile = tl.arange(0, N)[:, None] * WIDTH + c[None, :]
    A2 = tl.load(A2_ptr + tile)
    # Segments count along the walk for `carry_kernel` backward as well: the last one is number 0.
    number = tl.cdiv(chunks, SEGMENT) - 1 - segment if BACKWARD else segment
    room = number.to(tl.int64) * N * WIDTH + tile
    h = tl.zeros([N, C], tl.float32)
    if not FOLDS and segment > 0:
        h = tl.load(segment_enter_ptr + room)
    total = tl.zeros([C], tl.float32)
    passes = segment >= 0
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, chunks - 1), AHEAD):
        locals_, totals, keeps = (), (), ()
        for i in tl.static_range(AHEAD):
            link = start + i
            there = chunks - 1 - link if BACKWARD else link
            exists = link < chunks - 1
            at = there.to(tl.int64) * N * WIDTH + tile
            local = tl.load(ends_ptr + at, mask=within(tile, N * WIDTH, exists), other=0.0)
            chunk_total = tl.load(
                sums_ptr + there * WIDTH + c, mask=within(c, WIDTH, exists), other=0.0
            )
            keep = tl.load(keeps_ptr + there, mask=exists, other=1)
            locals_, totals, keeps = locals_ + (local,), totals + (chunk_total,), keeps + (keep,)
        for i in tl.static_range(AHEAD):
            link = start + i
            passed = tl.where(keeps[i] != 0, tl.exp2(A2 * totals[i][None, :]) * h, 0.0)
            h = passed + locals_[i]
            total += totals[i]
            passes = passes & (keeps[i] != 0)
            if not FOLDS:
                there = chunks - 2 - link if BACKWARD else link + 1
                own = within(tile, N * WIDTH, link < chunks - 1)
                tl.store(enter_ptr + there.to(tl.int64) * enter_stride + tile, h, mask=own)
    if FOLDS:
        tl.store(segment_ends_ptr + room, h)
        tl.store(segment_sums_ptr + number * WIDTH + c, total)
        tl.store(segment_keeps_ptr + number, passes.to(tl.int8), mask=tl.program_id(1) == 0)


@no_type_check
@triton.jit
def within(index, bound, valid):
    """Mask `index < bound` in a valid step, nothing in another.

    The bound is chosen, not the masks joined: Triton's interpreter cannot join a vector of truth
    values with a scalar one.
    """
    return index < tl.where(valid, bound, 0)


@no_type_check
@triton.jit
def starts_in_chunk(starts_ptr, chunk, steps, CHUNK: tl.constexpr):
    """Tell for each step of a chunk whether a sequence starts with it."""
    tau = chunk * CHUNK + tl.arange(0, CHUNK)
    word = tl.load(starts_ptr + tau // 32, mask=tau < steps, other=0)
    return ((word >> (tau % 32)) & 1) != 0


@no_type_check
@triton.jit
def load_starts(starts_ptr, tau, steps):
    """Load the bits of a group of steps from `tau` on, which stays inside a word."""
    return tl.load(starts_ptr + tau // 32, mask=tau < steps, other=0) >> (tau % 32)


@no_type_check
@triton.jit
def load_steps(ptr, c, left, STRIDE: tl.constexpr, INNER: tl.constexpr, COUNT: tl.constexpr):
    """Load COUNT steps from `ptr` on as a tuple; those past `left` are 0."""
    values = ()
    for i in tl.static_range(COUNT):
        values += (tl.load(ptr + i * STRIDE + c, mask=within(c, INNER, i < left), other=0.0),)
    return values


@no_type_check
@triton.jit
def load_slots(ptr, left, SIGN: tl.constexpr, COUNT: tl.constexpr):
    """Load the slots that COUNT steps visit as a tuple; 0 past `left`."""
    slots = ()
    for i in tl.static_range(COUNT):
        slots += (tl.load(ptr + i * SIGN, mask=i < left, other=0).to(tl.int32),)
    return slots


@no_type_check
@triton.jit
def load_rows(
    ptr, slots, rows, c, left, STRIDE: tl.constexpr, INNER: tl.constexpr,
    HAS_SAMPLES: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Load the rows at COUNT slots as a tuple; samples repeat the rows."""
    values = ()
    for i in tl.static_range(COUNT):
        row = slots[i] % rows if HAS_SAMPLES else slots[i]
        at = ptr + row.to(tl.int64) * STRIDE + c
        values += (tl.load(at, mask=within(c, INNER, i < left), other=0.0),)
    return values


@no_type_check
@triton.jit
def touch(
    B_ptr, C_ptr, left, B_STRIDE: tl.constexpr, C_STRIDE: tl.constexpr, STATE: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Read B and C of COUNT steps at four points each, so that their cache sectors are near.

    Every thread wants all of B and C, too much to be held in registers ahead of time.
    """
    lane = tl.arange(0, 8 * COUNT)
    step, point = lane // 8, (lane % 4) * (STATE - 1) // 3
    ptr = tl.where(lane % 8 < 4, B_ptr + step * B_STRIDE, C_ptr + step * C_STRIDE) + point
    return tl.load(ptr, mask=step < left, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def touch_rows(
    ptr, order_ptr, rows, left, STRIDE: tl.constexpr, SIGN: tl.constexpr, C: tl.constexpr,
    GATHERS: tl.constexpr, HAS_SAMPLES: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Read every sector of the rows that COUNT steps visit, likewise."""
    lane = tl.arange(0, COUNT * C // 8)
    step, sector = lane // (C // 8), lane % (C // 8)
    row = (step * SIGN).to(tl.int64)
    if GATHERS:
        row = tl.load(order_ptr + step * SIGN, mask=step < left, other=0).to(tl.int64)
        if HAS_SAMPLES:
            row = row % rows
    # A row may end inside the last block of channels; its first channel is there in any case.
    return tl.load(ptr + row * STRIDE + sector * 8, mask=step < left, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def touch_tile(ptr, valid, WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Read every sector of a tile of states, likewise."""
    lane = tl.arange(0, N * C // 8)
    row, sector = lane // (C // 8), lane % (C // 8)
    return tl.load(ptr + row * WIDTH + sector * 8, mask=within(lane, N * C, valid), other=0.0)


@no_type_check
@triton.jit
def keep_alive(ptr, touched, steps, COUNT: tl.constexpr):
    """Use touched values in a store that never happens; else the compiler drops their loads."""
    lane = tl.arange(0, COUNT)
    tl.store(ptr + lane, touched, mask=within(lane, COUNT, steps < 0))


@no_type_check
@triton.jit
def load_states(ptr, n, step, left, STRIDE: tl.constexpr, STATE: tl.constexpr):
    """Load B or C of a step after `ptr`; 0 past the steps that are left."""
    at = ptr + step * STRIDE + n
    return tl.load(at, mask=within(n, STATE, step < left), other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def clear_at_start(h, starts, i: tl.constexpr):
    """Put the state to zero where a sequence starts; a select, so that no NaN comes through."""
    return tl.where((starts >> i) & 1 != 0, 0.0, h)


@no_type_check
@triton.jit
def step_size(raw, bias, SOFTPLUS: tl.constexpr):
    """Return dt of one step from the raw delta."""
    raw = raw.to(tl.float32) + bias
    return softplus(raw) if SOFTPLUS else raw


@no_type_check
@triton.jit
def step_sizes(raws, bias, SOFTPLUS: tl.constexpr, COUNT: tl.constexpr):
    """Return dt of COUNT steps; together their long chains of arithmetic overlap."""
    dts = ()
    for i in tl.static_range(COUNT):
        dts += (step_size(raws[i], bias, SOFTPLUS),)
    return dts


@no_type_check
@triton.jit
def hold_loads_here():
    """Keep the compiler from moving the loads above down to their first use, to save registers.

    A program is one warp, so that the barrier itself waits for nobody.
    """
    tl.debug_barrier()


@no_type_check
@triton.jit
def advance(h, dt, u, B, A2, ZOH: tl.constexpr):
    """Return (decayed state, new state) after one step from state `h`."""
    x = dt[None, :] * A2  # [N, C]
    a = tl.exp2(x)
    p = a * h
    if ZOH:
        w = hold_weight(a, x * LN_2, dt[None, :], A2 * LN_2)
        return p, p + w * (u[None, :] * B[:, None])
    return p, p + (dt * u)[None, :] * B[:, None]

"""Triton kernels that pass states on from chunk to chunk, and those that prepare for it."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.step_kernels import follow, within
from graphmamba.ops.triton_math import LOG2_E


@no_type_check
@triton.jit
def either(a, b):
    """Join two words of bits."""
    return a | b


@no_type_check
@triton.jit
def prepare_kernel(
    cu_seqlens_ptr, A_ptr, starts_ptr, A2_ptr, boundaries, steps, inner, state, A_stride, blocks,
    words, WIDTH: tl.constexpr, N: tl.constexpr, WORDS: tl.constexpr, LOG_A: tl.constexpr,
    REVERSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Mark the steps that start a sequence, a bit each; lay log2(e) A out as the tiles read it."""
    follow(PDL)
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
    """Load COUNT links from chunk `there` on as three tuples; nothing passes those past `left`."""
    locals_, totals, keeps = (), (), ()
    for i in tl.static_range(COUNT):
        at = (there + i * sign).to(tl.int64)
        own = within(tile, N * WIDTH, i < left)
        locals_ += (tl.load(ends_ptr + at * N * WIDTH + tile, mask=own, other=0.0),)
        # Read as the tile is laid out: a row would have to be handed round the threads.
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
    """Pass states from chunk to chunk, in time (forward) or against it (adjoints).

    BY_SEQUENCE, a program walks over the chunks that a sequence reaches into, from its first to its
    last. Otherwise one walks over all, and lets pass what `keeps` says.
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
            # The links of a group are on their way while the group before is walked.
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
    """Cut a long walk over chunks into segments that are walked side by side.

    First each is folded into what it would pass on if it were entered with zero, and `carry_kernel`
    carries that from segment to segment; then each is walked again from what it is entered with.
    """
    follow(PDL)
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
    total = tl.zeros([N, C], tl.float32)
    passes = segment >= 0
    sign = -1 if BACKWARD else 1
    for start in range(segment * SEGMENT, tl.minimum((segment + 1) * SEGMENT, chunks - 1), AHEAD):
        here = chunks - 1 - start if BACKWARD else start
        # Links past the end are those of the last segment, which passes nothing on.
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

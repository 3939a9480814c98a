"""Triton kernels that pass states on from chunk to chunk, and those that prepare for it."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.selective_scan.step_kernels import within
from graphmamba.scan.triton_math import LOG2_E


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
    """Mark the steps that start a sequence, a bit each; lay log2(e) A out as the tiles read it."""
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

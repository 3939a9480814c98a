"""Triton kernels of losses whose entries have a target each; one that is no number does not count.

Entries are walked as they lie in memory, whatever row they are of.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.triton_math import sigmoid, softplus
from graphmamba.task.fused_losses.sum_kernels import add_counts


@no_type_check
@triton.jit(do_not_specialize=["size", "tiles"])
def count_entries_kernel(target_ptr, lines_ptr, size, tiles, B: tl.constexpr):
    """Leave the number of targets of `tiles` tiles of B entries."""
    program = tl.program_id(0).to(tl.int64)
    total = tl.zeros([B], tl.int32)
    for tile in range(tiles):
        at = (program * tiles + tile) * B + tl.arange(0, B)
        target = tl.load(target_ptr + at, mask=at < size, other=float("nan"))
        total += (target == target).to(tl.int32)  # noqa: PLR0124
    tl.store(lines_ptr + program, tl.sum(total, axis=0))


@no_type_check
@triton.jit(do_not_specialize=["size", "lines"])
def entry_loss_kernel(
    x_ptr, target_ptr, lines_ptr, out_ptr, shares_ptr, size, lines, B: tl.constexpr,
    LINES: tl.constexpr, IS_ALONE: tl.constexpr, IS_L1: tl.constexpr,
):  # fmt: skip
    """Write the gradient of B entries, and their share of the mean."""
    program = tl.program_id(0).to(tl.int64)
    at = program * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    target = tl.load(target_ptr + at, mask=at < size, other=float("nan"))
    is_labelled = target == target  # noqa: PLR0124
    if IS_ALONE:
        count = tl.sum(is_labelled.to(tl.int32), axis=0)
    else:
        count = tl.sum(add_counts(lines_ptr, lines, tl.arange(0, 1), 1, LINES), axis=0)
    total = tl.maximum(count, 1).to(tl.float32)
    if IS_L1:
        off = x - target
        loss = tl.abs(off)
        slope = tl.where(off > 0.0, 1.0, tl.where(off < 0.0, -1.0, 0.0))
    else:
        # Not softplus(x) - x target, which for a large x of target 1 would be all rounding.
        loss = tl.where(x > 0.0, x * (1.0 - target), -x * target) + softplus(-tl.abs(x))
        rest = sigmoid(-tl.abs(x))
        slope = tl.where(x > 0.0, 1.0 - target - rest, rest - target)
    tl.store(out_ptr + at, tl.where(is_labelled, slope / total, 0.0), mask=at < size)
    shares = tl.sum(tl.where(is_labelled, loss, 0.0), axis=0)
    tl.store(shares_ptr + program, shares / total)

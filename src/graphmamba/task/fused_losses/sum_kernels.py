"""Triton kernels that add up what the programs of a loss have left."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def add_counts(lines_ptr, lines, column, COLUMNS: tl.constexpr, LINES: tl.constexpr):
    """Add up lines of counts, LINES at a time."""
    total = tl.zeros([LINES, column.shape[0]], tl.int32)
    for first in range(0, lines, LINES):
        line = first + tl.arange(0, LINES)
        at = line[:, None] * COLUMNS + column[None, :]
        inside = (line < lines)[:, None] & (column < COLUMNS)[None, :]
        total += tl.load(lines_ptr + at, mask=inside, other=0)
    return tl.sum(total, axis=0)


@no_type_check
@triton.jit(do_not_specialize=["count"])
def add_shares_kernel(shares_ptr, loss_ptr, count, B: tl.constexpr):
    """Add up the shares of a loss, B at a time."""
    total = tl.zeros([B], tl.float32)
    for first in range(0, count, B):
        at = first + tl.arange(0, B)
        total += tl.load(shares_ptr + at, mask=at < count, other=0.0)
    tl.store(loss_ptr, tl.sum(total, axis=0))

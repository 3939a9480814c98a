"""A Triton kernel that adds up what programs have left, each in a line of its own."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def store_part(ptr, c, sums, FIRST: tl.constexpr, SIZE: tl.constexpr):
    """Store the SIZE sums from FIRST on."""
    if SIZE > 0:
        tl.store(ptr + c - FIRST, sums, mask=(c >= FIRST) & (c < FIRST + SIZE))


@no_type_check
@triton.jit(do_not_specialize=["lines"])
def add_lines_kernel(
    lines_ptr, a_ptr, b_ptr, c_ptr, d_ptr, lines, A: tl.constexpr, B: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, LINES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add up lines, LINES at a time, COLUMNS a program; their parts go to tensors of their own."""
    LINE: tl.constexpr = A + B + C + D
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([LINES, COLUMNS], tl.float32)
    for first in range(0, lines, LINES):
        line = first + tl.arange(0, LINES)
        at = line.to(tl.int64)[:, None] * LINE + column[None, :]
        inside = (line < lines)[:, None] & (column < LINE)[None, :]
        total += tl.load(lines_ptr + at, mask=inside, other=0.0)
    sums = tl.sum(total, axis=0)
    store_part(a_ptr, column, sums, 0, A)
    store_part(b_ptr, column, sums, A, B)
    store_part(c_ptr, column, sums, A + B, C)
    store_part(d_ptr, column, sums, A + B + C, D)

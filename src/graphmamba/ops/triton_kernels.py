"""Triton functions that several operators share: accurate scalar functions, sums over programs."""

from typing import no_type_check

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@no_type_check
@triton.jit
def softplus(x):
    """Return log(1 + exp(x)), accurate also where the argument of the logarithm is near 1.

    With e = exp(-|x|) it is max(x, 0) + log1p(e), and log1p(e) = 2 atanh(s) with s = e / (2 + e),
    at most 1/3, for which a fitted polynomial has an error of 4e-10.
    """
    e = tl.exp2(-tl.abs(x) * LOG2_E)
    s = e / (2.0 + e)
    q = s * s
    p = 0.11619439 * q + 0.10851679
    p = p * q + 0.1429629
    p = p * q + 0.19999851
    p = p * q + 0.33333334
    # The leading term is added last, so that small results keep all digits.
    return tl.maximum(x, 0.0) + 2.0 * (s * q * p + s)


@no_type_check
@triton.jit
def sigmoid(x):
    """Return 1 / (1 + exp(-x)); 0 where exp overflows."""
    return 1.0 / (1.0 + tl.exp2(-x * LOG2_E))


@no_type_check
@triton.jit
def hold_weight(a, x, dt, A):
    """Return (exp(dt A) - 1) / A, the zero-order hold of B, for a = exp(x), x = dt A.

    Near 0, where the difference cancels, it uses the series of (exp(x) - 1) / x.
    """
    is_small = tl.abs(x) < 0.5
    series = x * (1.0 / 40320.0) + 1.0 / 5040.0
    series = series * x + 1.0 / 720.0
    series = series * x + 1.0 / 120.0
    series = series * x + 1.0 / 24.0
    series = series * x + 1.0 / 6.0
    series = series * x + 0.5
    series = series * x + 1.0
    return tl.where(is_small, dt * series, (a - 1.0) / tl.where(is_small, 1.0, A))


@no_type_check
@triton.jit
def hold_weight_slope(a, w, x, dt, A):
    """Return the derivative of `hold_weight` by A, (dt exp(dt A) - w) / A."""
    is_small = tl.abs(x) < 0.5
    series = x * (1.0 / 45360.0) + 1.0 / 5760.0
    series = series * x + 1.0 / 840.0
    series = series * x + 1.0 / 144.0
    series = series * x + 1.0 / 30.0
    series = series * x + 1.0 / 8.0
    series = series * x + 1.0 / 3.0
    series = series * x + 0.5
    return tl.where(is_small, dt * dt * series, (dt * a - w) / tl.where(is_small, 1.0, A))


@no_type_check
@triton.jit
def store_part(ptr, c, sums, FIRST: tl.constexpr, SIZE: tl.constexpr):
    """Store the columns FIRST to FIRST + SIZE."""
    if SIZE > 0:
        tl.store(ptr + c - FIRST, sums, mask=(c >= FIRST) & (c < FIRST + SIZE))


@no_type_check
@triton.jit(do_not_specialize=["lines"])
def add_lines_kernel(
    lines_ptr, a_ptr, b_ptr, c_ptr, d_ptr, lines, A: tl.constexpr, B: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, LINES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum rows (lines) of partial sums; split the result into tensors of A, B, C, D entries.

    A program sums COLUMNS columns, LINES rows per iteration.
    """
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

"""Triton kernels of losses whose rows have a class each; negative ones do not count.

A class c of n_c rows, of n in all, weighs (n - n_c) / n.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.scan.triton_math import LOG2_E, sigmoid, softplus
from graphmamba.task.fused_losses.sum_kernels import add_counts

TINY = tl.constexpr(1.1754943508222875e-38)
"""The least normal float32: what a batch without any weight is divided by."""


@no_type_check
@triton.jit
def count_tile(label, c):
    """Count the rows of each class."""
    return tl.sum((label[:, None] == c[None, :]).to(tl.int32), axis=0)


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles"])
def count_classes_kernel(
    label_ptr, lines_ptr, rows, tiles, CLASSES: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Leave a line of counts by class, of `tiles` tiles of R rows."""
    program, c = tl.program_id(0), tl.arange(0, C)
    total = tl.zeros([C], tl.int32)
    for tile in range(tiles):
        row = (program * tiles + tile) * R + tl.arange(0, R)
        total += count_tile(tl.load(label_ptr + row, mask=row < rows, other=-1), c)
    tl.store(lines_ptr + program * CLASSES + c, total, mask=c < CLASSES)


@no_type_check
@triton.jit
def balance(count):
    """Return how many rows there are, at least 1, and what each class weighs."""
    total = tl.maximum(tl.sum(count, axis=0), 1.0)
    return total, (total - count) / total


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines"])
def class_loss_kernel(
    logits_ptr, label_ptr, lines_ptr, out_ptr, shares_ptr, rows, lines, CLASSES: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, LINES: tl.constexpr, IS_ALONE: tl.constexpr,
    IS_WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Write the gradient of R rows, and their share of the mean."""
    program, c = tl.program_id(0), tl.arange(0, C)
    row = program * R + tl.arange(0, R)
    label = tl.load(label_ptr + row, mask=row < rows, other=-1)
    counts = count_tile(label, c) if IS_ALONE else add_counts(lines_ptr, lines, c, CLASSES, LINES)
    # Columns beyond the last class hold what no row should have.
    count = tl.where(c < CLASSES, counts, 0).to(tl.float32)
    total, weight = balance(count)
    is_own = label[:, None] == c[None, :]
    if IS_WEIGHTED:
        divisor = tl.maximum(tl.sum(count * weight, axis=0), TINY)
        factor = tl.sum(tl.where(is_own, weight[None, :], 0.0), axis=1) / divisor
    else:
        factor = tl.full([R], 1.0, tl.float32) / total
    at = row.to(tl.int64)[:, None] * CLASSES + c[None, :]
    inside = (row < rows)[:, None] & (c < CLASSES)[None, :]
    x = tl.load(logits_ptr + at, mask=inside, other=0.0)
    x = tl.where((c < CLASSES)[None, :], x, float("-inf"))
    x -= tl.max(x, axis=1)[:, None]
    e = tl.exp2(x * LOG2_E)
    whole = tl.sum(e, axis=1)
    loss = tl.log(whole) - tl.sum(tl.where(is_own, x, 0.0), axis=1)
    loss = tl.where(label < CLASSES, loss, float("nan"))
    is_labelled = label >= 0
    slope = (e / whole[:, None] - is_own.to(tl.float32)) * factor[:, None]
    tl.store(out_ptr + at, tl.where(is_labelled[:, None], slope, 0.0), mask=inside)
    shares = tl.where(is_labelled, loss * factor, 0.0)
    tl.store(shares_ptr + program, tl.sum(shares, axis=0))


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines"])
def two_class_loss_kernel(
    logits_ptr, label_ptr, lines_ptr, out_ptr, shares_ptr, rows, lines, R: tl.constexpr,
    LINES: tl.constexpr, IS_ALONE: tl.constexpr,
):  # fmt: skip
    """Do the same for a single logit, whose labels are 0 and 1, and whose mean is over rows."""
    program, c = tl.program_id(0), tl.arange(0, 2)
    row = program * R + tl.arange(0, R)
    label = tl.load(label_ptr + row, mask=row < rows, other=-1)
    if IS_ALONE:
        ones = tl.sum((label == 1).to(tl.int32), axis=0).to(tl.float32)
        zeros = tl.sum((label == 0).to(tl.int32), axis=0).to(tl.float32)
    else:
        count = add_counts(lines_ptr, lines, c, 2, LINES).to(tl.float32)
        ones, zeros = tl.sum(tl.where(c == 1, count, 0.0)), tl.sum(tl.where(c == 0, count, 0.0))
    total = tl.maximum(ones + zeros, 1.0)
    factor = (total - tl.where(label == 1, ones, zeros)) / total / total
    x = tl.load(logits_ptr + row, mask=row < rows, other=0.0)
    sign = tl.where(label == 1, -1.0, 1.0)
    loss = tl.where(label < 2, softplus(sign * x), float("nan"))
    is_labelled = label >= 0
    slope = sign * sigmoid(sign * x) * factor
    tl.store(out_ptr + row, tl.where(is_labelled, slope, 0.0), mask=row < rows)
    shares = tl.where(is_labelled, loss * factor, 0.0)
    tl.store(shares_ptr + program, tl.sum(shares, axis=0))

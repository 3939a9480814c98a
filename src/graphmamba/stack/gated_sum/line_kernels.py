"""Count, mean and squared deviations of rows, brought together without a loss of digits.

A program keeps them for each row of its tile and leaves them in a line. Rows are taken in by their
difference to the mean so far, so that a mean far from zero costs no digits.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def as_stored(values, ptr):
    """Return what will be read back of values that are written there."""
    return values.to(ptr.dtype.element_ty).to(tl.float32)


@no_type_check
@triton.jit
def take_in(count, mean, spread, value, is_real):
    """Take one more value into each row of the tile, where it is real."""
    count += is_real.to(tl.float32)
    # A select, not a product with the mask: a NaN of a ghost must not come through.
    off = tl.where(is_real[:, None], value - mean, 0.0)
    step = off * (1.0 / tl.maximum(count, 1.0))[:, None]
    return count, mean + step, spread + off * (off - step)


@no_type_check
@triton.jit
def bring_together(count, mean, spread):
    """Return count, mean and squared deviations of all rows of the tile."""
    total = tl.sum(count, axis=0)
    whole = tl.sum(mean * count[:, None], axis=0) / tl.maximum(total, 1.0)
    off = mean - whole[None, :]
    return total, whole, tl.sum(spread + off * off * count[:, None], axis=0)


@no_type_check
@triton.jit
def store_line(
    lines_ptr, sizes_ptr, number, count, mean, spread, c, CHANNELS: tl.constexpr
):  # fmt: skip
    """Write the line of a program: mean and squared deviations, and apart from them the count.

    Programs of other channels of the same rows write the same count.
    """
    total, whole, squares = bring_together(count, mean, spread)
    line = lines_ptr + number.to(tl.int64) * (2 * CHANNELS) + c
    tl.store(line, whole, mask=c < CHANNELS)
    tl.store(line + CHANNELS, squares, mask=c < CHANNELS)
    tl.store(sizes_ptr + number, total)

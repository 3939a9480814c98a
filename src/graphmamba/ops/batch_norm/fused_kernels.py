"""Triton kernels of the forward pass of the batch norm and its neighbours, and of dropout alone.

A program takes every so-manieth tile. The first kernel of a pass leaves one line of sums for each
program; every program of the second adds up all lines by itself, always in the same order, which
spares a kernel in between. Its own first rows it loads before.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.tile_kernels import (
    activate,
    activation_slope,
    add_pair,
    drop,
    from_end,
    lead,
    load_keys,
    load_lines,
    load_pair,
    load_tile,
    real_rows,
    rows_of,
    store_tile,
    wait_for_lead,
)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def batch_norm_sums_kernel(
    x_ptr, before_ptr, seed_ptr, count_ptr, parts_ptr, rows, site,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write mean and squared deviations of the rows of each program.

    They are those of the differences to the mean of its first tile, so that a mean far from zero
    costs no digits: of N tiles, the mean of the first is at most sqrt(N) deviations off.
    """
    lead(PDL)
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    first, step = tl.program_id(0) * T, tl.num_programs(0) * T
    x, before = load_pair(
        x_ptr, before_ptr, first, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    next_x, next_before = load_pair(
        x_ptr, before_ptr, first + step, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    value = add_pair(x, before, keys, first + t, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
    is_real = (first + t < real)[:, None]
    value = tl.where(is_real, value, 0.0)
    height = tl.minimum(tl.maximum(real - first, 1), T).to(tl.float32)
    base = tl.sum(value, axis=0) / height
    total = tl.where(is_real, value - base[None, :], 0.0)
    squares = total * total
    for at in tl.range(first + step, rows, step, loop_unroll_factor=UNROLL):
        x, before = next_x, next_before
        next_x, next_before = load_pair(
            x_ptr, before_ptr, at + step, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
        )
        value = add_pair(x, before, keys, at + t, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
        value = tl.where((at + t < real)[:, None], value - base[None, :], 0.0)
        total += value
        squares += value * value
    own = tl.maximum(rows_of(tl.program_id(0), tl.num_programs(0), real, T), 1).to(tl.float32)
    moved = tl.sum(total, axis=0)
    spread = tl.sum(squares, axis=0) - moved * (moved / own)
    line = parts_ptr + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(line, base + moved / own, mask=c < CHANNELS)
    # Not a maximum, which would make 0 of NaN.
    tl.store(line + CHANNELS, tl.where(spread < 0.0, 0.0, spread), mask=c < CHANNELS)


@no_type_check
@triton.jit
def load_sums(parts_ptr, lines, c, LINES: tl.constexpr, CHANNELS: tl.constexpr):
    """Load the means and squared deviations of all lines, and the mean of the first once more."""
    own = load_lines(parts_ptr, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    spread = load_lines(parts_ptr + CHANNELS, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    return own, spread, tl.load(parts_ptr + c, mask=c < CHANNELS, other=0.0)


@no_type_check
@triton.jit
def join_sums(loaded, real, lines, line_rows, LINES: tl.constexpr):
    """Return mean and variance of all rows; each line is that of tiles of `line_rows` rows."""
    own, spread, base = loaded
    number = tl.maximum(real, 1).to(tl.float32)
    i = tl.arange(0, LINES)
    size = tl.where(i < lines, rows_of(i, lines, real, line_rows), 0).to(tl.float32)[:, None]
    # Means differ by less than they are large: their differences to one of them keep more digits.
    off = own - base[None, :]
    moved = tl.sum(off * size, axis=0) / number
    off -= moved[None, :]
    return base + moved, tl.sum(spread + off * off * size, axis=0) / number


@no_type_check
@triton.jit
def move_running(
    mean_ptr, var_ptr, batches_ptr, mean, variance, own, spread, real, momentum, c,
    HAS_BATCHES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Move the running statistics towards those of the batch, where these are finite."""
    number = real.to(tl.float32)
    unbiased = spread * number / (number - 1.0)
    moves = (c < CHANNELS) & (tl.abs(own) < float("inf")) & (unbiased < float("inf"))
    # Not by differences, of which a share of 1 would leave what it rounds off.
    rest = 1.0 - momentum
    tl.store(mean_ptr + c, rest * mean + momentum * own, mask=moves)
    tl.store(var_ptr + c, rest * variance + momentum * unbiased, mask=moves)
    if HAS_BATCHES:
        if tl.program_id(1) == 0:
            tl.store(batches_ptr, tl.load(batches_ptr) + 1)


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines", "line_rows", "site", "site_after"])
def batch_norm_apply_kernel(
    x_ptr, before_ptr, after_ptr, weight_ptr, bias_ptr, running_mean_ptr, running_var_ptr,
    batches_ptr, seed_before_ptr, seed_after_ptr, count_ptr, parts_ptr, y_ptr, kept_ptr, rows,
    lines, line_rows, site, site_after, momentum, eps,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    AFTER_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, LINES: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_AFTER: tl.constexpr, HAS_COUNT: tl.constexpr,
    HAS_BATCHES: tl.constexpr, TRAINING: tl.constexpr,
    ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr, UNROLL: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Write the output; the first programs keep mean and 1 / deviation, and move the running ones.

    Nobody reads the running statistics where they are moved.
    """
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    exists = c < CHANNELS
    tiles = tl.cdiv(rows, T)
    at, limit = from_end(tl.program_id(0), tiles, rows, T)
    x, before = load_pair(
        x_ptr, before_ptr, at, c, limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    after = x
    if HAS_AFTER:
        after = load_tile(after_ptr, at, c, limit, T, AFTER_STRIDE, CHANNELS)
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_before_ptr, site, THRESHOLD)
    keys_after = load_keys(seed_after_ptr, site_after, THRESHOLD_AFTER)
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    mean = tl.load(running_mean_ptr + c, mask=exists, other=0.0).to(tl.float32)
    variance = tl.load(running_var_ptr + c, mask=exists, other=1.0).to(tl.float32)
    wait_for_lead(PDL)
    if TRAINING:
        loaded = load_sums(parts_ptr, lines, c, LINES, CHANNELS)
        own, spread = join_sums(loaded, real, lines, line_rows, LINES)
        if real > 1:
            if tl.program_id(0) == 0:
                move_running(
                    running_mean_ptr, running_var_ptr, batches_ptr, mean, variance, own, spread,
                    real, momentum, c, HAS_BATCHES, CHANNELS,
                )  # fmt: skip
        mean = tl.where(real > 1, own, mean)
        variance = tl.where(real > 1, spread, variance)
    scale = 1.0 / tl.sqrt_rn(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(kept_ptr + c, mean, mask=exists)
        tl.store(kept_ptr + CHANNELS + c, scale, mask=exists)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), loop_unroll_factor=UNROLL):
        next_at, next_limit = from_end(number + tl.num_programs(0), tiles, rows, T)
        next_x, next_before = load_pair(
            x_ptr, before_ptr, next_at, c, next_limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
            CHANNELS,
        )  # fmt: skip
        next_after = next_x
        if HAS_AFTER:
            next_after = load_tile(after_ptr, next_at, c, next_limit, T, AFTER_STRIDE, CHANNELS)
        row = at + t
        value = add_pair(x, before, keys, row, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
        z = (value - mean[None, :]) * scale[None, :] * weight[None, :] + bias[None, :]
        y = activate(z, ACTIVATION)
        y = drop(y, keys_after, row, c, THRESHOLD_AFTER, SCALE_AFTER, CHANNELS)
        y = tl.where((row < real)[:, None], y, 0.0)
        if HAS_AFTER:
            y += after.to(tl.float32)
        store_tile(y_ptr, at, c, rows, y, T, CHANNELS)
        at, x, before, after = next_at, next_x, next_before, next_after


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def activate_drop_kernel(
    x_ptr, grad_ptr, seed_ptr, out_ptr, rows, site,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, GRAD_STRIDE: tl.constexpr, T: tl.constexpr,
    C: tl.constexpr, IS_BACKWARD: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """Write one tile of drop(activation(x)), or of its gradient."""
    first = tl.program_id(0) * T
    row, c = first + tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    value = load_tile(x_ptr, first, c, rows, T, X_STRIDE, CHANNELS).to(tl.float32)
    if IS_BACKWARD:
        grad = load_tile(grad_ptr, first, c, rows, T, GRAD_STRIDE, CHANNELS).to(tl.float32)
        value = grad * activation_slope(value, ACTIVATION)
    else:
        value = activate(value, ACTIVATION)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    value = drop(value, keys, row, c, THRESHOLD, SCALE, CHANNELS)
    store_tile(out_ptr, first, c, rows, value, T, CHANNELS)

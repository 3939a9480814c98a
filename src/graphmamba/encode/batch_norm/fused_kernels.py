"""Triton kernels of the batch norm and its neighbours; a tile is [T, C]: T rows by C channels.

A program walks `tiles` tiles below one another. The first kernel of a pass leaves one line of sums
for each program; every program of the second adds up all lines by itself, always in the same order,
which spares a kernel in between.
"""

from typing import no_type_check

import triton
import triton.language as tl

LINES = tl.constexpr(32)
"""Lines of sums that are read at a time."""


@no_type_check
@triton.jit
def mix(bits):
    """Scatter 32 bits, as `drop._mix` does."""
    bits = (bits ^ (bits >> 16)) * tl.full((), 0x7FEB352D, tl.uint32)
    bits = (bits ^ (bits >> 15)) * tl.full((), 0x846CA68B, tl.uint32)
    return bits ^ (bits >> 16)


@no_type_check
@triton.jit
def drop(
    values, seed_ptr, site, row, c,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Drop and scale entries as `drop.dropped` does; a threshold of 0 drops none."""
    kept = values
    # No early return: what follows one is compiled all the same, and here there is no seed.
    if THRESHOLD > 0:
        seed = tl.load(seed_ptr)
        low, high = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
        key = mix(low + site.to(tl.uint32))
        second = mix(high ^ key)
        width = tl.full((), CHANNELS, tl.uint32)
        index = row[:, None].to(tl.uint32) * width + c[None, :].to(tl.uint32)
        bits = mix(mix(index ^ key) + second)
        kept = tl.where(bits >= tl.full((), THRESHOLD, tl.uint32), values * SCALE, 0.0)
    return kept


@no_type_check
@triton.jit
def load_tile(ptr, row, c, inside, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load rows as float32; 0 outside."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    mask = inside[:, None] & (c < CHANNELS)[None, :]
    return tl.load(ptr + at, mask=mask, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def load_sum(
    x_ptr, before_ptr, seed_ptr, site, row, c, inside,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    HAS_BEFORE: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Return before + drop(x), what is normalised; 0 outside."""
    value = load_tile(x_ptr, row, c, inside, X_STRIDE, CHANNELS)
    value = drop(value, seed_ptr, site, row, c, THRESHOLD, SCALE, CHANNELS)
    if HAS_BEFORE:
        value += load_tile(before_ptr, row, c, inside, BEFORE_STRIDE, CHANNELS)
    return value


@no_type_check
@triton.jit
def first_row(
    x_ptr, before_ptr, seed_ptr, site, c, real,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    HAS_BEFORE: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Return the first row of what is normalised, which all rows are compared with.

    Means are sums of differences to it: of numbers as large as the deviation, not as the mean.
    """
    row = tl.arange(0, 1)
    tile = load_sum(
        x_ptr, before_ptr, seed_ptr, site, row, c, row < real, CHANNELS, X_STRIDE, BEFORE_STRIDE,
        HAS_BEFORE, THRESHOLD, SCALE,
    )  # fmt: skip
    return tl.sum(tile, axis=0)


@no_type_check
@triton.jit
def real_rows(count_ptr, rows, HAS_COUNT: tl.constexpr):
    """Return the number of real rows."""
    if HAS_COUNT:
        return tl.minimum(tl.load(count_ptr).to(tl.int32), rows)
    return rows


@no_type_check
@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    """Apply the activation."""
    if ACTIVATION == "relu":
        return tl.maximum(z, 0.0)
    if ACTIVATION == "gelu":
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    return z


@no_type_check
@triton.jit
def activation_slope(z, ACTIVATION: tl.constexpr):
    """Return the derivative of the activation."""
    if ACTIVATION == "relu":
        return tl.where(z > 0.0, 1.0, 0.0)
    if ACTIVATION == "gelu":
        density = 0.3989422804014327 * tl.exp(-0.5 * z * z)
        return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density
    return tl.full(z.shape, 1.0, tl.float32)


@no_type_check
@triton.jit
def load_line(ptr, number, programs, c, LINE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load some lines of sums; 0 behind the last."""
    mask = (number < programs)[:, None] & (c < CHANNELS)[None, :]
    return tl.load(ptr + number[:, None] * LINE + c[None, :], mask=mask, other=0.0)


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles", "site"])
def batch_norm_sums_kernel(
    x_ptr, before_ptr, seed_ptr, count_ptr, parts_ptr, rows, tiles, site,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Write mean, less the first row, and squared deviations of the rows of each program.

    Every place of the tile keeps its own mean and deviations (Welford); they are brought together
    at the end.
    """
    c = tl.program_id(1) * C + tl.arange(0, C)
    real = real_rows(count_ptr, rows, HAS_COUNT)
    base = first_row(
        x_ptr, before_ptr, seed_ptr, site, c, real, CHANNELS, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
        THRESHOLD, SCALE,
    )  # fmt: skip
    seen = tl.zeros([T], tl.float32)
    mean = tl.zeros([T, C], tl.float32)
    squares = tl.zeros([T, C], tl.float32)
    for tile in range(tiles):
        row = (tl.program_id(0) * tiles + tile) * T + tl.arange(0, T)
        inside = row < real
        value = load_sum(
            x_ptr, before_ptr, seed_ptr, site, row, c, inside, CHANNELS, X_STRIDE, BEFORE_STRIDE,
            HAS_BEFORE, THRESHOLD, SCALE,
        )  # fmt: skip
        seen += tl.where(inside, 1.0, 0.0)
        value -= base[None, :]
        off = value - mean
        moved = mean + off / tl.maximum(seen, 1.0)[:, None]
        squares = tl.where(inside[:, None], squares + off * (value - moved), squares)
        mean = tl.where(inside[:, None], moved, mean)
    total = tl.maximum(tl.sum(seen, axis=0), 1.0)
    middle = tl.sum(mean * seen[:, None], axis=0) / total
    off = mean - middle[None, :]
    spread = tl.sum(squares + off * off * seen[:, None], axis=0)
    line = parts_ptr + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(line, middle, mask=c < CHANNELS)
    tl.store(line + CHANNELS, spread, mask=c < CHANNELS)


@no_type_check
@triton.jit
def join_sums(parts_ptr, real, programs, height, c, C: tl.constexpr, CHANNELS: tl.constexpr):
    """Return mean, less the first row, and variance of all rows.

    A program's rows are `height`, those of the last one fewer.
    """
    number = tl.maximum(real, 1).to(tl.float32)
    mean = tl.zeros([C], tl.float32)
    for first in range(0, programs, LINES):
        i = first + tl.arange(0, LINES)
        size = tl.minimum(tl.maximum(real - i * height, 0), height).to(tl.float32)
        own = load_line(parts_ptr, i, programs, c, 2 * CHANNELS, CHANNELS)
        mean += tl.sum(own * size[:, None], axis=0)
    mean /= number
    squares = tl.zeros([C], tl.float32)
    for first in range(0, programs, LINES):
        i = first + tl.arange(0, LINES)
        size = tl.minimum(tl.maximum(real - i * height, 0), height).to(tl.float32)
        own = load_line(parts_ptr, i, programs, c, 2 * CHANNELS, CHANNELS)
        off = own - mean[None, :]
        spread = load_line(parts_ptr + CHANNELS, i, programs, c, 2 * CHANNELS, CHANNELS)
        squares += tl.sum(spread + off * off * size[:, None], axis=0)
    return mean, squares / number


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles", "site", "site_after"])
def batch_norm_apply_kernel(
    x_ptr, before_ptr, after_ptr, weight_ptr, bias_ptr, running_mean_ptr, running_var_ptr,
    batches_ptr, seed_before_ptr, seed_after_ptr, count_ptr, parts_ptr, y_ptr, kept_ptr, rows,
    tiles, site, site_after, momentum, eps,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    AFTER_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_AFTER: tl.constexpr, HAS_COUNT: tl.constexpr, HAS_BATCHES: tl.constexpr,
    TRAINING: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
):  # fmt: skip
    """Write the output; the first programs keep mean and 1 / deviation, and move the running ones.

    Nobody reads the running statistics where they are moved.
    """
    c = tl.program_id(1) * C + tl.arange(0, C)
    exists = c < CHANNELS
    real = real_rows(count_ptr, rows, HAS_COUNT)
    mean = tl.load(running_mean_ptr + c, mask=exists, other=0.0).to(tl.float32)
    variance = tl.load(running_var_ptr + c, mask=exists, other=1.0).to(tl.float32)
    if TRAINING:
        own, spread = join_sums(parts_ptr, real, tl.num_programs(0), tiles * T, c, C, CHANNELS)
        own += first_row(
            x_ptr, before_ptr, seed_before_ptr, site, c, real, CHANNELS, X_STRIDE, BEFORE_STRIDE,
            HAS_BEFORE, THRESHOLD, SCALE,
        )  # fmt: skip
        if real > 1:
            if tl.program_id(0) == 0:
                number = real.to(tl.float32)
                unbiased = spread * number / (number - 1.0)
                tl.store(running_mean_ptr + c, mean + momentum * (own - mean), mask=exists)
                moved = variance + momentum * (unbiased - variance)
                tl.store(running_var_ptr + c, moved, mask=exists)
                if HAS_BATCHES:
                    if tl.program_id(1) == 0:
                        tl.store(batches_ptr, tl.load(batches_ptr) + 1)
        mean = tl.where(real > 1, own, mean)
        variance = tl.where(real > 1, spread, variance)
    scale = 1.0 / tl.sqrt_rn(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(kept_ptr + c, mean, mask=exists)
        tl.store(kept_ptr + CHANNELS + c, scale, mask=exists)
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    for tile in range(tiles):
        row = (tl.program_id(0) * tiles + tile) * T + tl.arange(0, T)
        inside = row < real
        value = load_sum(
            x_ptr, before_ptr, seed_before_ptr, site, row, c, inside, CHANNELS, X_STRIDE,
            BEFORE_STRIDE, HAS_BEFORE, THRESHOLD, SCALE,
        )  # fmt: skip
        z = (value - mean[None, :]) * scale[None, :] * weight[None, :] + bias[None, :]
        y = drop(
            activate(z, ACTIVATION), seed_after_ptr, site_after, row, c, THRESHOLD_AFTER,
            SCALE_AFTER, CHANNELS,
        )  # fmt: skip
        y = tl.where(inside[:, None], y, 0.0)
        if HAS_AFTER:
            y += load_tile(after_ptr, row, c, row < rows, AFTER_STRIDE, CHANNELS)
        at = row.to(tl.int64)[:, None] * CHANNELS + c[None, :]
        tl.store(y_ptr + at, y, mask=(row < rows)[:, None] & exists[None, :])


@no_type_check
@triton.jit
def load_norm(kept_ptr, weight_ptr, bias_ptr, c, exists, CHANNELS: tl.constexpr):
    """Return mean and 1 / deviation as the forward pass kept them, weight and bias."""
    mean = tl.load(kept_ptr + c, mask=exists, other=0.0)
    scale = tl.load(kept_ptr + CHANNELS + c, mask=exists, other=0.0)
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    return mean, scale, weight, bias


@no_type_check
@triton.jit
def load_slope(
    grad_ptr, x_ptr, before_ptr, seed_before_ptr, seed_after_ptr, site, site_after, row, c, inside,
    mean, scale, weight, bias,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, HAS_BEFORE: tl.constexpr, ACTIVATION: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr,
    SCALE_AFTER: tl.constexpr,
):  # fmt: skip
    """Return the normalised rows, and the gradient of what the activation is applied to."""
    value = load_sum(
        x_ptr, before_ptr, seed_before_ptr, site, row, c, inside, CHANNELS, X_STRIDE,
        BEFORE_STRIDE, HAS_BEFORE, THRESHOLD, SCALE,
    )  # fmt: skip
    hat = (value - mean[None, :]) * scale[None, :]
    grad = load_tile(grad_ptr, row, c, inside, GRAD_STRIDE, CHANNELS)
    grad = drop(grad, seed_after_ptr, site_after, row, c, THRESHOLD_AFTER, SCALE_AFTER, CHANNELS)
    grad *= activation_slope(hat * weight[None, :] + bias[None, :], ACTIVATION)
    return hat, grad


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles", "site", "site_after"])
def batch_norm_bwd_sums_kernel(
    grad_ptr, x_ptr, before_ptr, weight_ptr, bias_ptr, seed_before_ptr, seed_after_ptr, count_ptr,
    kept_ptr, parts_ptr, rows, tiles, site, site_after,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_COUNT: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
):  # fmt: skip
    """Write what the rows of each program add to the gradients of weight and bias."""
    c = tl.program_id(1) * C + tl.arange(0, C)
    exists = c < CHANNELS
    real = real_rows(count_ptr, rows, HAS_COUNT)
    mean, scale, weight, bias = load_norm(kept_ptr, weight_ptr, bias_ptr, c, exists, CHANNELS)
    d_weight = tl.zeros([T, C], tl.float32)
    d_bias = tl.zeros([T, C], tl.float32)
    for tile in range(tiles):
        row = (tl.program_id(0) * tiles + tile) * T + tl.arange(0, T)
        hat, grad = load_slope(
            grad_ptr, x_ptr, before_ptr, seed_before_ptr, seed_after_ptr, site, site_after, row, c,
            row < real, mean, scale, weight, bias, CHANNELS, GRAD_STRIDE, X_STRIDE, BEFORE_STRIDE,
            HAS_BEFORE, ACTIVATION, THRESHOLD, SCALE, THRESHOLD_AFTER, SCALE_AFTER,
        )  # fmt: skip
        d_weight += grad * hat
        d_bias += grad
    line = parts_ptr + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(line, tl.sum(d_weight, axis=0), mask=exists)
    tl.store(line + CHANNELS, tl.sum(d_bias, axis=0), mask=exists)


@no_type_check
@triton.jit(do_not_specialize=["rows", "tiles", "site", "site_after"])
def batch_norm_bwd_apply_kernel(
    grad_ptr, x_ptr, before_ptr, weight_ptr, bias_ptr, seed_before_ptr, seed_after_ptr, count_ptr,
    kept_ptr, parts_ptr, dx_ptr, d_before_ptr, d_weight_ptr, d_bias_ptr, rows, tiles, site,
    site_after,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_COUNT: tl.constexpr, WRITES_BEFORE: tl.constexpr, TRAINING: tl.constexpr,
    ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
):  # fmt: skip
    """Write the gradients of x and before; the first programs write those of weight and bias."""
    c = tl.program_id(1) * C + tl.arange(0, C)
    exists = c < CHANNELS
    real = real_rows(count_ptr, rows, HAS_COUNT)
    mean, scale, weight, bias = load_norm(kept_ptr, weight_ptr, bias_ptr, c, exists, CHANNELS)
    d_weight = tl.zeros([C], tl.float32)
    d_bias = tl.zeros([C], tl.float32)
    for first in range(0, tl.num_programs(0), LINES):
        i = first + tl.arange(0, LINES)
        programs = tl.num_programs(0)
        d_weight += tl.sum(load_line(parts_ptr, i, programs, c, 2 * CHANNELS, CHANNELS), axis=0)
        own = load_line(parts_ptr + CHANNELS, i, programs, c, 2 * CHANNELS, CHANNELS)
        d_bias += tl.sum(own, axis=0)
    if tl.program_id(0) == 0:
        tl.store(d_weight_ptr + c, d_weight, mask=exists)
        tl.store(d_bias_ptr + c, d_bias, mask=exists)
    # One row, or none, was normalised with statistics that do not depend on it.
    share = tl.where(real > 1, 1.0 / tl.maximum(real, 1).to(tl.float32), 0.0)
    if not TRAINING:
        share = share * 0.0
    for tile in range(tiles):
        row = (tl.program_id(0) * tiles + tile) * T + tl.arange(0, T)
        hat, grad = load_slope(
            grad_ptr, x_ptr, before_ptr, seed_before_ptr, seed_after_ptr, site, site_after, row, c,
            row < real, mean, scale, weight, bias, CHANNELS, GRAD_STRIDE, X_STRIDE, BEFORE_STRIDE,
            HAS_BEFORE, ACTIVATION, THRESHOLD, SCALE, THRESHOLD_AFTER, SCALE_AFTER,
        )  # fmt: skip
        shared = (d_bias[None, :] + hat * d_weight[None, :]) * share
        d = (grad - shared) * (scale * weight)[None, :]
        d = tl.where((row < real)[:, None], d, 0.0)
        at = row.to(tl.int64)[:, None] * CHANNELS + c[None, :]
        mask = (row < rows)[:, None] & exists[None, :]
        if WRITES_BEFORE:
            tl.store(d_before_ptr + at, d, mask=mask)
        d = drop(d, seed_before_ptr, site, row, c, THRESHOLD, SCALE, CHANNELS)
        tl.store(dx_ptr + at, d, mask=mask)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def activate_drop_kernel(
    x_ptr, grad_ptr, seed_ptr, out_ptr, rows, site,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, GRAD_STRIDE: tl.constexpr, T: tl.constexpr,
    C: tl.constexpr, IS_BACKWARD: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """Write one tile of drop(activation(x)), or of its gradient."""
    row = tl.program_id(0) * T + tl.arange(0, T)
    c = tl.program_id(1) * C + tl.arange(0, C)
    inside = row < rows
    value = load_tile(x_ptr, row, c, inside, X_STRIDE, CHANNELS)
    if IS_BACKWARD:
        grad = load_tile(grad_ptr, row, c, inside, GRAD_STRIDE, CHANNELS)
        value = grad * activation_slope(value, ACTIVATION)
    else:
        value = activate(value, ACTIVATION)
    value = drop(value, seed_ptr, site, row, c, THRESHOLD, SCALE, CHANNELS)
    at = row.to(tl.int64)[:, None] * CHANNELS + c[None, :]
    tl.store(out_ptr + at, value, mask=inside[:, None] & (c < CHANNELS)[None, :])

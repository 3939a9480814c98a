"""Triton kernels of the backward pass of the batch norm and its neighbours."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.tile_kernels import (
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
    store_tile,
    wait_for_lead,
)


@no_type_check
@triton.jit
def load_norm(kept_ptr, weight_ptr, bias_ptr, c, CHANNELS: tl.constexpr):
    """Return mean and 1 / deviation as the forward pass kept them, weight and bias."""
    exists = c < CHANNELS
    mean = tl.load(kept_ptr + c, mask=exists, other=0.0)
    scale = tl.load(kept_ptr + CHANNELS + c, mask=exists, other=0.0)
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    return mean[None, :], scale[None, :], weight[None, :], bias[None, :]


@no_type_check
@triton.jit
def slope(
    grad, x, before, norm, keys, keys_after, row, c, real,
    CHANNELS: tl.constexpr, HAS_BEFORE: tl.constexpr, ACTIVATION: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr,
    SCALE_AFTER: tl.constexpr,
):  # fmt: skip
    """Return the normalised rows, and the gradient of what the activation is applied to.

    Both are 0 behind the real rows.
    """
    mean, scale, weight, bias = norm
    is_real = (row < real)[:, None]
    value = add_pair(x, before, keys, row, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
    hat = tl.where(is_real, (value - mean) * scale, 0.0)
    grad = drop(grad.to(tl.float32), keys_after, row, c, THRESHOLD_AFTER, SCALE_AFTER, CHANNELS)
    grad *= activation_slope(hat * weight + bias, ACTIVATION)
    return hat, tl.where(is_real, grad, 0.0)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site", "site_after"])
def batch_norm_bwd_sums_kernel(
    grad_ptr, x_ptr, before_ptr, weight_ptr, bias_ptr, seed_before_ptr, seed_after_ptr, count_ptr,
    kept_ptr, parts_ptr, rows, site, site_after,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_COUNT: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
    UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of each program add to the gradients of weight and bias."""
    lead(PDL)
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    first, step = tl.program_id(0) * T, tl.num_programs(0) * T
    grad = load_tile(grad_ptr, first, c, rows, T, GRAD_STRIDE, CHANNELS)
    x, before = load_pair(
        x_ptr, before_ptr, first, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_before_ptr, site, THRESHOLD)
    keys_after = load_keys(seed_after_ptr, site_after, THRESHOLD_AFTER)
    norm = load_norm(kept_ptr, weight_ptr, bias_ptr, c, CHANNELS)
    d_weight = tl.zeros([T, C], tl.float32)
    d_bias = tl.zeros([T, C], tl.float32)
    for at in tl.range(first, rows, step, loop_unroll_factor=UNROLL):
        next_grad = load_tile(grad_ptr, at + step, c, rows, T, GRAD_STRIDE, CHANNELS)
        next_x, next_before = load_pair(
            x_ptr, before_ptr, at + step, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
        )
        hat, dz = slope(
            grad, x, before, norm, keys, keys_after, at + t, c, real, CHANNELS, HAS_BEFORE,
            ACTIVATION, THRESHOLD, SCALE, THRESHOLD_AFTER, SCALE_AFTER,
        )  # fmt: skip
        d_weight += dz * hat
        d_bias += dz
        grad, x, before = next_grad, next_x, next_before
    line = parts_ptr + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(line, tl.sum(d_weight, axis=0), mask=c < CHANNELS)
    tl.store(line + CHANNELS, tl.sum(d_bias, axis=0), mask=c < CHANNELS)


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines", "site", "site_after"])
def batch_norm_bwd_apply_kernel(
    grad_ptr, x_ptr, before_ptr, weight_ptr, bias_ptr, seed_before_ptr, seed_after_ptr, count_ptr,
    kept_ptr, parts_ptr, dx_ptr, d_before_ptr, d_weight_ptr, d_bias_ptr, rows, lines, site,
    site_after,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, LINES: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr, WRITES_BEFORE: tl.constexpr,
    TRAINING: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
    UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the gradients of x and before; the first programs write those of weight and bias."""
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    tiles = tl.cdiv(rows, T)
    at, limit = from_end(tl.program_id(0), tiles, rows, T)
    grad = load_tile(grad_ptr, at, c, limit, T, GRAD_STRIDE, CHANNELS)
    x, before = load_pair(
        x_ptr, before_ptr, at, c, limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_before_ptr, site, THRESHOLD)
    keys_after = load_keys(seed_after_ptr, site_after, THRESHOLD_AFTER)
    norm = load_norm(kept_ptr, weight_ptr, bias_ptr, c, CHANNELS)
    wait_for_lead(PDL)
    own = load_lines(parts_ptr, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    own_bias = load_lines(parts_ptr + CHANNELS, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    d_weight, d_bias = tl.sum(own, axis=0), tl.sum(own_bias, axis=0)
    if tl.program_id(0) == 0:
        tl.store(d_weight_ptr + c, d_weight, mask=c < CHANNELS)
        tl.store(d_bias_ptr + c, d_bias, mask=c < CHANNELS)
    # One row, or none, was normalised with statistics that do not depend on it.
    share = tl.where(real > 1, 1.0 / tl.maximum(real, 1).to(tl.float32), 0.0)
    if not TRAINING:
        share = share * 0.0
    d_weight, d_bias = (d_weight * share)[None, :], (d_bias * share)[None, :]
    factor = norm[1] * norm[2]
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), loop_unroll_factor=UNROLL):
        next_at, next_limit = from_end(number + tl.num_programs(0), tiles, rows, T)
        next_grad = load_tile(grad_ptr, next_at, c, next_limit, T, GRAD_STRIDE, CHANNELS)
        next_x, next_before = load_pair(
            x_ptr, before_ptr, next_at, c, next_limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
            CHANNELS,
        )  # fmt: skip
        row = at + t
        hat, dz = slope(
            grad, x, before, norm, keys, keys_after, row, c, real, CHANNELS, HAS_BEFORE,
            ACTIVATION, THRESHOLD, SCALE, THRESHOLD_AFTER, SCALE_AFTER,
        )  # fmt: skip
        d = (dz - (d_bias + hat * d_weight)) * factor
        d = tl.where((row < real)[:, None], d, 0.0)
        if WRITES_BEFORE:
            store_tile(d_before_ptr, at, c, rows, d, T, CHANNELS)
        d = drop(d, keys, row, c, THRESHOLD, SCALE, CHANNELS)
        store_tile(dx_ptr, at, c, rows, d, T, CHANNELS)
        at, grad, x, before = next_at, next_grad, next_x, next_before

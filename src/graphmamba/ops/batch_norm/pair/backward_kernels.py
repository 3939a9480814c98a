"""Triton kernels of the gradients of two batch norms that are added up."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.backward_kernels import load_norm, slope
from graphmamba.ops.batch_norm.tile_kernels import (
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
def slopes(
    grad, a, b, before, norm_a, norm_b, keys, row, c, real, CHANNELS: tl.constexpr,
    HAS_BEFORE: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Return the normalised rows of both, and the gradient of either; 0 behind the real rows."""
    hat_a, dz = slope(
        grad, a, a, norm_a, keys, keys, row, c, real, CHANNELS, False, "none", 0, 1.0, 0, 1.0
    )
    hat_b, _ = slope(
        grad, b, before, norm_b, keys, keys, row, c, real, CHANNELS, HAS_BEFORE, "none", THRESHOLD,
        SCALE, 0, 1.0,
    )  # fmt: skip
    return hat_a, hat_b, dz


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def pair_bwd_sums_kernel(
    grad_ptr, a_ptr, b_ptr, before_ptr, weight_a_ptr, weight_b_ptr, seed_ptr, count_ptr,
    kept_a_ptr, kept_b_ptr, parts_ptr, rows, site,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what the rows of each program add to the gradients of both weights and of a bias.

    That of the other bias is the same.
    """
    lead(PDL)
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    first, step = tl.program_id(0) * T, tl.num_programs(0) * T
    grad = load_tile(grad_ptr, first, c, rows, T, GRAD_STRIDE, CHANNELS)
    a = load_tile(a_ptr, first, c, rows, T, A_STRIDE, CHANNELS)
    b, before = load_pair(
        b_ptr, before_ptr, first, c, rows, T, B_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    # Without an activation nobody asks for a bias.
    norm_a = load_norm(kept_a_ptr, weight_a_ptr, weight_a_ptr, c, CHANNELS)
    norm_b = load_norm(kept_b_ptr, weight_b_ptr, weight_b_ptr, c, CHANNELS)
    d_weight_a = tl.zeros([T, C], tl.float32)
    d_weight_b = tl.zeros([T, C], tl.float32)
    d_bias = tl.zeros([T, C], tl.float32)
    for at in tl.range(first, rows, step, loop_unroll_factor=UNROLL):
        next_grad = load_tile(grad_ptr, at + step, c, rows, T, GRAD_STRIDE, CHANNELS)
        next_a = load_tile(a_ptr, at + step, c, rows, T, A_STRIDE, CHANNELS)
        next_b, next_before = load_pair(
            b_ptr, before_ptr, at + step, c, rows, T, B_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
        )
        hat_a, hat_b, dz = slopes(
            grad, a, b, before, norm_a, norm_b, keys, at + t, c, real, CHANNELS, HAS_BEFORE,
            THRESHOLD, SCALE,
        )  # fmt: skip
        d_weight_a += dz * hat_a
        d_weight_b += dz * hat_b
        d_bias += dz
        grad, a, b, before = next_grad, next_a, next_b, next_before
    line = parts_ptr + tl.program_id(0) * 3 * CHANNELS + c
    tl.store(line, tl.sum(d_weight_a, axis=0), mask=c < CHANNELS)
    tl.store(line + CHANNELS, tl.sum(d_weight_b, axis=0), mask=c < CHANNELS)
    tl.store(line + 2 * CHANNELS, tl.sum(d_bias, axis=0), mask=c < CHANNELS)


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines", "site"])
def pair_bwd_apply_kernel(
    grad_ptr, a_ptr, b_ptr, before_ptr, weight_a_ptr, weight_b_ptr, seed_ptr, count_ptr,
    kept_a_ptr, kept_b_ptr, parts_ptr, da_ptr, db_ptr, d_before_ptr, d_weight_a_ptr,
    d_weight_b_ptr, d_bias_a_ptr, d_bias_b_ptr, rows, lines, site,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
    LINES: tl.constexpr, HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr,
    WRITES_BEFORE: tl.constexpr, TRAINING: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a, b and before; the first programs write those of the weights."""
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    tiles = tl.cdiv(rows, T)
    at, limit = from_end(tl.program_id(0), tiles, rows, T)
    grad = load_tile(grad_ptr, at, c, limit, T, GRAD_STRIDE, CHANNELS)
    a = load_tile(a_ptr, at, c, limit, T, A_STRIDE, CHANNELS)
    b, before = load_pair(
        b_ptr, before_ptr, at, c, limit, T, B_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    norm_a = load_norm(kept_a_ptr, weight_a_ptr, weight_a_ptr, c, CHANNELS)
    norm_b = load_norm(kept_b_ptr, weight_b_ptr, weight_b_ptr, c, CHANNELS)
    wait_for_lead(PDL)
    own_a = load_lines(parts_ptr, lines, c, LINES, 3 * CHANNELS, CHANNELS)
    own_b = load_lines(parts_ptr + CHANNELS, lines, c, LINES, 3 * CHANNELS, CHANNELS)
    own_bias = load_lines(parts_ptr + 2 * CHANNELS, lines, c, LINES, 3 * CHANNELS, CHANNELS)
    d_weight_a, d_weight_b = tl.sum(own_a, axis=0), tl.sum(own_b, axis=0)
    d_bias = tl.sum(own_bias, axis=0)
    if tl.program_id(0) == 0:
        tl.store(d_weight_a_ptr + c, d_weight_a, mask=c < CHANNELS)
        tl.store(d_weight_b_ptr + c, d_weight_b, mask=c < CHANNELS)
        tl.store(d_bias_a_ptr + c, d_bias, mask=c < CHANNELS)
        tl.store(d_bias_b_ptr + c, d_bias, mask=c < CHANNELS)
    # One row, or none, was normalised with statistics that do not depend on it.
    share = tl.where(real > 1, 1.0 / tl.maximum(real, 1).to(tl.float32), 0.0)
    if not TRAINING:
        share = share * 0.0
    d_weight_a, d_weight_b = (d_weight_a * share)[None, :], (d_weight_b * share)[None, :]
    d_bias = (d_bias * share)[None, :]
    factor_a, factor_b = norm_a[1] * norm_a[2], norm_b[1] * norm_b[2]
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), loop_unroll_factor=UNROLL):
        next_at, next_limit = from_end(number + tl.num_programs(0), tiles, rows, T)
        next_grad = load_tile(grad_ptr, next_at, c, next_limit, T, GRAD_STRIDE, CHANNELS)
        next_a = load_tile(a_ptr, next_at, c, next_limit, T, A_STRIDE, CHANNELS)
        next_b, next_before = load_pair(
            b_ptr, before_ptr, next_at, c, next_limit, T, B_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
            CHANNELS,
        )  # fmt: skip
        row = at + t
        hat_a, hat_b, dz = slopes(
            grad, a, b, before, norm_a, norm_b, keys, row, c, real, CHANNELS, HAS_BEFORE,
            THRESHOLD, SCALE,
        )  # fmt: skip
        is_real = (row < real)[:, None]
        da = tl.where(is_real, (dz - (d_bias + hat_a * d_weight_a)) * factor_a, 0.0)
        store_tile(da_ptr, at, c, rows, da, T, CHANNELS)
        db = tl.where(is_real, (dz - (d_bias + hat_b * d_weight_b)) * factor_b, 0.0)
        if WRITES_BEFORE:
            store_tile(d_before_ptr, at, c, rows, db, T, CHANNELS)
        db = drop(db, keys, row, c, THRESHOLD, SCALE, CHANNELS)
        store_tile(db_ptr, at, c, rows, db, T, CHANNELS)
        at, grad, a, b, before = next_at, next_grad, next_a, next_b, next_before

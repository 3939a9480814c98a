"""Triton kernels of two batch norms added up: a, and before + drop(b), both [rows, channels].

As in `batch_norm.fused_kernels`, the first kernel of a pass leaves one line of sums for each
program, and every program of the second adds up all lines by itself.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.fused_kernels import (
    batch_norm_sums_kernel,
    join_sums,
    load_sums,
    move_running,
)
from graphmamba.ops.batch_norm.tile_kernels import (
    add_pair,
    from_end,
    load_keys,
    load_pair,
    load_tile,
    real_rows,
    store_tile,
    wait_for_lead,
)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def pair_sums_kernel(
    a_ptr, b_ptr, before_ptr, seed_ptr, count_ptr, parts_a_ptr, parts_b_ptr, rows, site,
    CHANNELS: tl.constexpr, A_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_COUNT: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, UNROLL: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Do what the single norm's kernel does, half of the programs for a, half for b.

    They share nothing, and each holds no more than for one norm.
    """
    if tl.program_id(2) == 0:
        batch_norm_sums_kernel(
            b_ptr, before_ptr, seed_ptr, count_ptr, parts_b_ptr, rows, site, CHANNELS, B_STRIDE,
            BEFORE_STRIDE, T, C, HAS_BEFORE, HAS_COUNT, THRESHOLD, SCALE, UNROLL, PDL,
        )  # fmt: skip
    else:
        batch_norm_sums_kernel(
            a_ptr, a_ptr, seed_ptr, count_ptr, parts_a_ptr, rows, site, CHANNELS, A_STRIDE,
            0, T, C, False, HAS_COUNT, 0, 1.0, UNROLL, PDL,
        )  # fmt: skip


@no_type_check
@triton.jit
def load_given(weight_ptr, bias_ptr, mean_ptr, var_ptr, c, CHANNELS: tl.constexpr):
    """Return weight, bias and the running statistics."""
    exists = c < CHANNELS
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + c, mask=exists, other=0.0).to(tl.float32)
    variance = tl.load(var_ptr + c, mask=exists, other=1.0).to(tl.float32)
    return weight, bias, mean, variance


@no_type_check
@triton.jit
def settle(
    given, loaded, kept_ptr, mean_ptr, var_ptr, batches_ptr, real, lines, line_rows, momentum,
    eps, c, LINES: tl.constexpr, HAS_BATCHES: tl.constexpr, TRAINING: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """Return the mean and 1 / deviation that are normalised with.

    The first programs keep them, and move the running ones, which nobody reads where they are
    moved.
    """
    mean, variance = given[2], given[3]
    if TRAINING:
        own, spread = join_sums(loaded, real, lines, line_rows, LINES)
        if real > 1:
            if tl.program_id(0) == 0:
                move_running(
                    mean_ptr, var_ptr, batches_ptr, mean, variance, own, spread, real, momentum, c,
                    HAS_BATCHES, CHANNELS,
                )  # fmt: skip
        mean = tl.where(real > 1, own, mean)
        variance = tl.where(real > 1, spread, variance)
    scale = 1.0 / tl.sqrt_rn(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(kept_ptr + c, mean, mask=c < CHANNELS)
        tl.store(kept_ptr + CHANNELS + c, scale, mask=c < CHANNELS)
    return mean, scale


@no_type_check
@triton.jit
def normalise(value, given, own):
    """Centre and scale a tile."""
    weight, bias, _, _ = given
    mean, scale = own
    return (value - mean[None, :]) * scale[None, :] * weight[None, :] + bias[None, :]


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines", "line_rows", "site"])
def pair_apply_kernel(
    a_ptr, b_ptr, before_ptr, weight_a_ptr, bias_a_ptr, mean_a_ptr, var_a_ptr, batches_a_ptr,
    weight_b_ptr, bias_b_ptr, mean_b_ptr, var_b_ptr, batches_b_ptr, seed_ptr, count_ptr,
    parts_a_ptr, parts_b_ptr, y_ptr, kept_a_ptr, kept_b_ptr, rows, lines, line_rows, site,
    momentum_a, momentum_b, eps_a, eps_b,
    CHANNELS: tl.constexpr, A_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, LINES: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr, HAS_BATCHES_A: tl.constexpr,
    HAS_BATCHES_B: tl.constexpr, TRAINING: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the sum of both norms, and for each of them what `settle` says."""
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    tiles = tl.cdiv(rows, T)
    at, limit = from_end(tl.program_id(0), tiles, rows, T)
    a = load_tile(a_ptr, at, c, limit, T, A_STRIDE, CHANNELS)
    b, before = load_pair(
        b_ptr, before_ptr, at, c, limit, T, B_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    given_a = load_given(weight_a_ptr, bias_a_ptr, mean_a_ptr, var_a_ptr, c, CHANNELS)
    given_b = load_given(weight_b_ptr, bias_b_ptr, mean_b_ptr, var_b_ptr, c, CHANNELS)
    wait_for_lead(PDL)
    # All lines are on their way before the first are added up.
    loaded_a, loaded_b = given_a, given_b
    if TRAINING:
        loaded_a = load_sums(parts_a_ptr, lines, c, LINES, CHANNELS)
        loaded_b = load_sums(parts_b_ptr, lines, c, LINES, CHANNELS)
    own_a = settle(
        given_a, loaded_a, kept_a_ptr, mean_a_ptr, var_a_ptr, batches_a_ptr, real, lines,
        line_rows, momentum_a, eps_a, c, LINES, HAS_BATCHES_A, TRAINING, CHANNELS,
    )  # fmt: skip
    own_b = settle(
        given_b, loaded_b, kept_b_ptr, mean_b_ptr, var_b_ptr, batches_b_ptr, real, lines,
        line_rows, momentum_b, eps_b, c, LINES, HAS_BATCHES_B, TRAINING, CHANNELS,
    )  # fmt: skip
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), loop_unroll_factor=UNROLL):
        next_at, next_limit = from_end(number + tl.num_programs(0), tiles, rows, T)
        next_a = load_tile(a_ptr, next_at, c, next_limit, T, A_STRIDE, CHANNELS)
        next_b, next_before = load_pair(
            b_ptr, before_ptr, next_at, c, next_limit, T, B_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
            CHANNELS,
        )  # fmt: skip
        value = add_pair(b, before, keys, at + t, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
        y = normalise(a.to(tl.float32), given_a, own_a) + normalise(value, given_b, own_b)
        y = tl.where((at + t < real)[:, None], y, 0.0)
        store_tile(y_ptr, at, c, rows, y, T, CHANNELS)
        at, a, b, before = next_at, next_a, next_b, next_before

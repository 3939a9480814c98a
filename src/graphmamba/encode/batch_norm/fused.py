"""The batch norm and its neighbours on a GPU: which kernels run, on what tiles."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.batch_norm.drop import site_key
from graphmamba.encode.batch_norm.fused_kernels import (
    activate_drop_kernel,
    batch_norm_apply_kernel,
    batch_norm_bwd_apply_kernel,
    batch_norm_bwd_sums_kernel,
    batch_norm_sums_kernel,
)

BLOCK_ROWS = 64
BLOCK_CHANNELS = 32
WARPS = 4
MOST_PROGRAMS = 396
"""Three for each of an H200's processors; each leaves a line of sums, which all of them add up."""

Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]
Seed = Int[Tensor, ""]


@dataclass(frozen=True)
class _Walk:
    """What all kernels are told about the rows."""

    grid: tuple[int, int]
    numbers: tuple[int, int]
    """Rows, and tiles of a program."""
    constants: dict[str, Any]


def forward(
    x: Rows,
    weight: Channels,
    bias: Channels,
    before: Rows | None,
    after: Rows | None,
    seed_before: Seed | None,
    seed_after: Seed | None,
    count: Int[Tensor, ""] | None,
    running_mean: Channels,
    running_var: Channels,
    batches: Int[Tensor, ""] | None,
    activation: str,
    rates: list[float],
    sites: list[int],
    is_training: bool,
    momentum: float,
    eps: float,
) -> tuple[Rows, Float[Tensor, "2 channels"]]:
    """Output, and mean and 1 / deviation; in training the running statistics are moved."""
    walk = _walk(x, before, count, rates)
    dtype = x.dtype if after is None else torch.promote_types(x.dtype, after.dtype)
    y = x.new_empty(x.shape, dtype=dtype)
    kept = x.new_empty((2, x.shape[1]), dtype=torch.float32)
    if y.numel() == 0:
        # Without a row no program runs, and nobody reads what is kept.
        return y, kept.zero_()
    parts = kept.new_empty((walk.grid[0], 2, x.shape[1]))
    near, far = site_key(sites[0]), site_key(sites[1])
    if is_training:
        batch_norm_sums_kernel[walk.grid](
            *(x, _or(before, x), _or(seed_before, x), _or(count, x), parts, *walk.numbers, near),
            THRESHOLD=walk.constants["THRESHOLD"],
            SCALE=walk.constants["SCALE"],
            **_common(walk),
        )
    batch_norm_apply_kernel[walk.grid](
        *(x, _or(before, x), _or(after, x), weight, bias, running_mean, running_var),
        *(_or(batches, x), _or(seed_before, x), _or(seed_after, x), _or(count, x), parts, y, kept),
        *(*walk.numbers, near, far, momentum, eps),
        AFTER_STRIDE=0 if after is None else after.stride(0),
        HAS_AFTER=after is not None,
        HAS_BATCHES=batches is not None,
        TRAINING=is_training,
        ACTIVATION=activation,
        **walk.constants,
    )
    return y, kept


def backward(
    grad: Rows,
    kept: Float[Tensor, "2 channels"],
    x: Rows,
    weight: Channels,
    bias: Channels,
    before: Rows | None,
    seed_before: Seed | None,
    seed_after: Seed | None,
    count: Int[Tensor, ""] | None,
    activation: str,
    rates: list[float],
    sites: list[int],
    is_training: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and before; of shape (0,) where `before` has that of x."""
    walk = _walk(x, before, count, rates)
    dx, d_weight, d_bias = (each.new_empty(each.shape) for each in (x, weight, bias))
    is_apart = before is not None and (rates[0] > 0 or before.dtype != x.dtype)
    d_before = _or(before, x).new_empty(x.shape if is_apart else (0,))
    if dx.numel() == 0:
        return dx, d_weight.zero_(), d_bias.zero_(), d_before
    parts = kept.new_empty((walk.grid[0], 2, x.shape[1]))
    inputs = grad, x, _or(before, x), weight, bias, _or(seed_before, x), _or(seed_after, x)
    keys = site_key(sites[0]), site_key(sites[1])
    constants = {**walk.constants, "GRAD_STRIDE": grad.stride(0), "ACTIVATION": activation}
    batch_norm_bwd_sums_kernel[walk.grid](
        *(*inputs, _or(count, x), kept, parts, *walk.numbers, *keys), **constants
    )
    batch_norm_bwd_apply_kernel[walk.grid](
        *(*inputs, _or(count, x), kept, parts, dx, d_before, d_weight, d_bias),
        *(*walk.numbers, *keys),
        WRITES_BEFORE=is_apart,
        TRAINING=is_training,
        **constants,
    )
    return dx, d_weight, d_bias, d_before


def activate_drop(
    x: Rows, grad: Rows | None, seed: Seed, activation: str, rate: float, site: int
) -> Rows:
    """drop(activation(x)), or given the gradient of that, the one of x."""
    rows, channels = x.shape
    out = x.new_empty(x.shape)
    if out.numel() > 0:
        grid = triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(channels, BLOCK_CHANNELS)
        activate_drop_kernel[grid](
            *(x, _or(grad, x), seed, out, rows, site_key(site)),
            CHANNELS=channels,
            X_STRIDE=x.stride(0),
            GRAD_STRIDE=0 if grad is None else grad.stride(0),
            T=BLOCK_ROWS,
            C=BLOCK_CHANNELS,
            IS_BACKWARD=grad is not None,
            ACTIVATION=activation,
            THRESHOLD=round(rate * 2**32),
            SCALE=1 / (1 - rate),
            num_warps=WARPS,
        )
    return out


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A tensor for the place of one that is not there, and is not read."""
    return other if tensor is None else tensor


def _walk(x: Rows, before: Rows | None, count: Int[Tensor, ""] | None, rates: list[float]) -> _Walk:
    rows, channels = x.shape
    blocks = triton.cdiv(channels, BLOCK_CHANNELS)
    programs = max(min(triton.cdiv(rows, BLOCK_ROWS), MOST_PROGRAMS // max(blocks, 1)), 1)
    tiles = triton.cdiv(rows, BLOCK_ROWS * programs)
    thresholds = [round(rate * 2**32) for rate in rates]
    constants = {
        "CHANNELS": channels, "X_STRIDE": x.stride(0),
        "BEFORE_STRIDE": 0 if before is None else before.stride(0), "T": BLOCK_ROWS,
        "C": BLOCK_CHANNELS, "HAS_BEFORE": before is not None, "HAS_COUNT": count is not None,
        "THRESHOLD": thresholds[0], "SCALE": 1 / (1 - rates[0]),
        "THRESHOLD_AFTER": thresholds[1], "SCALE_AFTER": 1 / (1 - rates[1]), "num_warps": WARPS,
    }  # fmt: skip
    return _Walk((programs, blocks), (rows, tiles), constants)


def _common(walk: _Walk) -> dict[str, Any]:
    after = {"THRESHOLD", "SCALE", "THRESHOLD_AFTER", "SCALE_AFTER"}
    return {name: value for name, value in walk.constants.items() if name not in after}

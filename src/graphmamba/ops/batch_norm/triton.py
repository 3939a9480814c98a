"""Launches the Triton kernels of the fused batch norm."""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.batch_norm.triton_kernels import (
    batch_norm_apply_kernel,
    batch_norm_bwd_apply_kernel,
    batch_norm_bwd_sums_kernel,
    batch_norm_sums_kernel,
)
from graphmamba.ops.dropout import site_key
from graphmamba.ops.registration import either
from graphmamba.ops.triton_launch import add_partial_sums, ceil_div, power_of_two, starts_early

LEAST_CHANNELS = 16  # of a block; narrower ones would waste part of each memory sector
MOST_PARTIAL = 128  # rows of partial sums; each program of the second kernel loads all of them
LEAST_PARTIAL = 32  # smaller powers of two would only add compiled variants


@dataclass(frozen=True)
class Tile:
    """Tile and launch configuration of one kernel."""

    rows: int = 64
    channels: int = 32  # at most; narrower tiles, with more rows, are used where they waste less
    warps: int = 4
    programs: int = 396  # at most, over all blocks of channels; 3 per multiprocessor of an H200
    unroll: int = 2  # tiles per loop iteration; 2 saves copies of the prefetched rows


@dataclass(frozen=True)
class Tiles:
    """One tile per kernel."""

    sums: Tile = Tile()
    apply: Tile = Tile()
    bwd_sums: Tile = Tile(unroll=1)  # more would take registers of three programs
    bwd_apply: Tile = Tile()


@dataclass(frozen=True)
class Grid:
    """Launch grid and constexpr arguments of one kernel."""

    programs: tuple[int, int]  # along the rows (strided by tiles), blocks of channels
    constants: dict[str, Any]


def partition(rows: int, channels: int, tile: Tile, most: int | None = None) -> Grid:
    """Choose the grid for `rows` by `channels`, with at most `most` programs along the rows.

    Example:
        >>> partition(21_000, 96, Tile(rows=64, channels=32, programs=396)).programs
        (110, 3)
        >>> partition(1_900, 48, Tile(rows=64, channels=32)).constants
        {'T': 128, 'C': 16, 'UNROLL': 2, 'num_warps': 4}
    """
    width = tile.channels
    while width > LEAST_CHANNELS and _covered(channels, width // 2) < _covered(channels, width):
        width //= 2
    height, blocks = tile.rows * tile.channels // width, ceil_div(channels, width)
    tiles = ceil_div(rows, height)
    programs = max(tile.programs // blocks, 1)
    programs = programs if most is None else min(programs, most)
    # No more programs than needed for the same number of tiles in the slowest one.
    programs = ceil_div(tiles, ceil_div(tiles, programs))
    constants = {"T": height, "C": width, "UNROLL": tile.unroll, "num_warps": tile.warps}
    return Grid((programs, blocks), constants)


def partial_block(partial: int) -> int:
    """Return the block size with which `partial` rows of partial sums are loaded."""
    return max(power_of_two(partial), LEAST_PARTIAL)


def _covered(channels: int, width: int) -> int:
    return ceil_div(channels, width) * width


TILES = Tiles()
EARLY = {"PDL": True, "launch_pdl": True}
LATE = {"PDL": False}

Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]
Seed = Int[Tensor, ""]
Start = dict[str, bool]  # launch options


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
    """Return the output and (mean, 1 / std); in training, update the running statistics."""
    types = [each.dtype for each in (x, before, after) if each is not None]
    y = x.new_empty(x.shape, dtype=reduce(torch.promote_types, types))
    kept = x.new_empty((2, x.shape[1]), dtype=torch.float32)
    if y.numel() == 0:
        return y, kept.zero_()
    rows, channels = x.shape
    sums = partition(rows, channels, TILES.sums, MOST_PARTIAL)
    apply = partition(rows, channels, TILES.apply)
    partial = sums.programs[0]
    parts = kept.new_empty((partial, 2, x.shape[1]))
    key_before, key_after = site_key(sites[0]), site_key(sites[1])
    constants = _constants(x, before, count, rates[0])
    first, second = starts(x.device) if is_training else (LATE, LATE)
    if is_training:
        batch_norm_sums_kernel[sums.programs](
            x, either(before, x), either(seed_before, x), either(count, x), parts, x.shape[0],
            key_before, **constants, **sums.constants, **first,
        )  # fmt: skip
    batch_norm_apply_kernel[apply.programs](
        x, either(before, x), either(after, x), weight, bias, running_mean, running_var,
        either(batches, x), either(seed_before, x), either(seed_after, x), either(count, x),
        parts, y, kept, x.shape[0], partial, sums.constants["T"], key_before, key_after, momentum,
        eps, AFTER_STRIDE=0 if after is None else after.stride(0), LINES=partial_block(partial),
        HAS_AFTER=after is not None, HAS_BATCHES=batches is not None, TRAINING=is_training,
        ACTIVATION=activation, **_constants_after(rates[1]), **constants, **apply.constants,
        **second,
    )  # fmt: skip
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
    *,
    for_parameters: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight, bias and before.

    That of before has shape (0,) where it equals that of x. With `for_parameters`, only those of
    weight and bias are computed.
    """
    dx, d_weight, d_bias = (
        each.new_empty(each.shape) for each in (x[:0] if for_parameters else x, weight, bias)
    )
    writes_before = before is not None and (rates[0] > 0 or before.dtype != x.dtype)
    d_before = either(before, x).new_empty(x.shape if writes_before else (0,))
    if x.numel() == 0:
        return dx, d_weight.zero_(), d_bias.zero_(), d_before
    first, second = starts(x.device)
    places = seed_before, seed_after, count
    inputs = grad, x, either(before, x), weight, bias, *(either(each, x) for each in places), kept
    constants = {
        **_constants(x, before, count, rates[0]), **_constants_after(rates[1]),
        "GRAD_STRIDE": grad.stride(0), "ACTIVATION": activation,
    }  # fmt: skip
    rows, channels = x.shape
    sums = partition(rows, channels, TILES.bwd_sums, MOST_PARTIAL)
    apply = partition(rows, channels, TILES.bwd_apply)
    parts = kept.new_empty((sums.programs[0], 2, x.shape[1]))
    batch_norm_bwd_sums_kernel[sums.programs](
        *inputs, parts, x.shape[0], *map(site_key, sites), **constants, **sums.constants, **first
    )
    if for_parameters:
        add_partial_sums(parts.view(len(parts), -1), d_weight, d_bias)
        return dx, d_weight, d_bias, d_before
    batch_norm_bwd_apply_kernel[apply.programs](
        *inputs, parts, dx, d_before, d_weight, d_bias, x.shape[0], len(parts),
        *map(site_key, sites), LINES=partial_block(len(parts)), WRITES_BEFORE=writes_before,
        TRAINING=is_training, **constants, **apply.constants, **second,
    )  # fmt: skip
    return dx, d_weight, d_bias, d_before


def starts(device: torch.device) -> tuple[Start, Start]:
    """Launch options of the two kernels of a pass; the second starts early where supported."""
    return ({"PDL": True}, EARLY) if starts_early(device) else (LATE, LATE)


def _constants(
    x: Rows, before: Rows | None, count: Int[Tensor, ""] | None, rate: float
) -> dict[str, Any]:
    """Constexpr arguments of all kernels for the input of the norm."""
    return {
        "CHANNELS": x.shape[1], "X_STRIDE": x.stride(0),
        "BEFORE_STRIDE": 0 if before is None else before.stride(0),
        "HAS_BEFORE": before is not None, "HAS_COUNT": count is not None,
        "THRESHOLD": round(rate * 2**32), "SCALE": 1 / (1 - rate),
    }  # fmt: skip


def _constants_after(rate: float) -> dict[str, Any]:
    return {"THRESHOLD_AFTER": round(rate * 2**32), "SCALE_AFTER": 1 / (1 - rate)}

"""The batch norm and its neighbours on a GPU: which kernels run, on what tiles."""

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

LEAST_CHANNELS = 16
"""A narrower block would read less of each row than the memory hands out at a time."""
MOST_PARTIAL = 128
"""Rows of partial sums, which each program of the second kernel of a pass holds all at once."""
LEAST_PARTIAL = 32
"""Room for fewer would be compiled anew for next to nothing."""


@dataclass(frozen=True)
class Tile:
    """What a program of one kernel holds at a time, and how many programs there are."""

    rows: int = 64
    channels: int = 32
    """Of the widest block; a narrower one, of more rows, is taken where it leaves less empty."""
    warps: int = 4
    programs: int = 396
    """At most, over all blocks of channels; by default three for each of an H200's processors."""
    unroll: int = 2
    """Tiles of a round: with two, the rows of the next tile need not be moved to be this one's."""


@dataclass(frozen=True)
class Tiles:
    """One for each kernel."""

    sums: Tile = Tile()
    apply: Tile = Tile()
    bwd_sums: Tile = Tile(unroll=1)
    """With two tiles a round, three of its programs would not fit into the registers."""
    bwd_apply: Tile = Tile()


@dataclass(frozen=True)
class Grid:
    """How one kernel is launched."""

    programs: tuple[int, int]
    """Over the rows, of which each takes every so-manieth tile, and over blocks of channels."""
    constants: dict[str, Any]


def partition(rows: int, channels: int, tile: Tile, most: int | None = None) -> Grid:
    """Divide rows by channels; along the rows into `most` programs at most.

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
    # As many as make the rounds that the slowest of them would need anyway.
    programs = ceil_div(tiles, ceil_div(tiles, programs))
    constants = {"T": height, "C": width, "UNROLL": tile.unroll, "num_warps": tile.warps}
    return Grid((programs, blocks), constants)


def room_for(partial: int) -> int:
    """Return the power of two that rows of partial sums are read into."""
    return max(power_of_two(partial), LEAST_PARTIAL)


def _covered(channels: int, width: int) -> int:
    return ceil_div(channels, width) * width


TILES = Tiles()
EARLY = {"PDL": True, "launch_pdl": True}
LATE = {"PDL": False}

Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]
Seed = Int[Tensor, ""]
Start = dict[str, bool]
"""Options of a launch."""


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
    types = [each.dtype for each in (x, before, after) if each is not None]
    y = x.new_empty(x.shape, dtype=reduce(torch.promote_types, types))
    kept = x.new_empty((2, x.shape[1]), dtype=torch.float32)
    if y.numel() == 0:
        # Without a row no program runs, and nobody reads what is kept.
        return y, kept.zero_()
    rows, channels = x.shape
    sums, apply = (
        partition(rows, channels, TILES.sums, MOST_PARTIAL),
        partition(rows, channels, TILES.apply),
    )
    partial = sums.programs[0]
    parts = kept.new_empty((partial, 2, x.shape[1]))
    near, far = site_key(sites[0]), site_key(sites[1])
    constants = _constants(x, before, count, rates[0])
    first, second = starts(x.device) if is_training else (LATE, LATE)
    if is_training:
        batch_norm_sums_kernel[sums.programs](
            *(x, either(before, x), either(seed_before, x), either(count, x)),
            *(parts, x.shape[0], near),
            **constants,
            **sums.constants,
            **first,
        )
    batch_norm_apply_kernel[apply.programs](
        *(x, either(before, x), either(after, x), weight, bias, running_mean, running_var),
        *(either(batches, x), either(seed_before, x), either(seed_after, x), either(count, x)),
        *(parts, y, kept),
        *(x.shape[0], partial, sums.constants["T"], near, far, momentum, eps),
        AFTER_STRIDE=0 if after is None else after.stride(0),
        LINES=room_for(partial),
        HAS_AFTER=after is not None,
        HAS_BATCHES=batches is not None,
        TRAINING=is_training,
        ACTIVATION=activation,
        **_constants_after(rates[1]),
        **constants,
        **apply.constants,
        **second,
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
    *,
    for_parameters: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and before; of shape (0,) where `before` has that of x.

    `for_parameters` finds those of weight and bias alone.
    """
    dx, d_weight, d_bias = (
        each.new_empty(each.shape) for each in (x[:0] if for_parameters else x, weight, bias)
    )
    is_apart = before is not None and (rates[0] > 0 or before.dtype != x.dtype)
    d_before = either(before, x).new_empty(x.shape if is_apart else (0,))
    if x.numel() == 0:
        return dx, d_weight.zero_(), d_bias.zero_(), d_before
    first, second = starts(x.device)
    places = seed_before, seed_after, count
    inputs = (
        *(grad, x, either(before, x), weight, bias, *(either(each, x) for each in places), kept),
    )
    constants = {
        **_constants(x, before, count, rates[0]), **_constants_after(rates[1]),
        "GRAD_STRIDE": grad.stride(0), "ACTIVATION": activation,
    }  # fmt: skip
    rows, channels = x.shape
    sums, apply = (
        partition(rows, channels, TILES.bwd_sums, MOST_PARTIAL),
        partition(rows, channels, TILES.bwd_apply),
    )
    parts = kept.new_empty((sums.programs[0], 2, x.shape[1]))
    batch_norm_bwd_sums_kernel[sums.programs](
        *(*inputs, parts, x.shape[0], *map(site_key, sites)),
        **constants,
        **sums.constants,
        **first,
    )
    if for_parameters:
        add_partial_sums(parts.view(len(parts), -1), d_weight, d_bias)
        return dx, d_weight, d_bias, d_before
    batch_norm_bwd_apply_kernel[apply.programs](
        *(*inputs, parts, dx, d_before, d_weight, d_bias),
        *(x.shape[0], len(parts), *map(site_key, sites)),
        LINES=room_for(len(parts)),
        WRITES_BEFORE=is_apart,
        TRAINING=is_training,
        **constants,
        **apply.constants,
        **second,
    )
    return dx, d_weight, d_bias, d_before


def starts(device: torch.device) -> tuple[Start, Start]:
    """Return how the kernels of a pass start: the second, if it can, while the first is running."""
    return ({"PDL": True}, EARLY) if starts_early(device) else (LATE, LATE)


def _constants(
    x: Rows, before: Rows | None, count: Int[Tensor, ""] | None, rate: float
) -> dict[str, Any]:
    """What all kernels are told about that which is normalised."""
    return {
        "CHANNELS": x.shape[1], "X_STRIDE": x.stride(0),
        "BEFORE_STRIDE": 0 if before is None else before.stride(0),
        "HAS_BEFORE": before is not None, "HAS_COUNT": count is not None,
        "THRESHOLD": round(rate * 2**32), "SCALE": 1 / (1 - rate),
    }  # fmt: skip


def _constants_after(rate: float) -> dict[str, Any]:
    """What they are told about the dropout after it."""
    return {"THRESHOLD_AFTER": round(rate * 2**32), "SCALE_AFTER": 1 / (1 - rate)}

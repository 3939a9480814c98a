"""The batch norm and its neighbours on a GPU: which kernels run, on what tiles."""

from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.batch_norm.backward_kernels import (
    batch_norm_bwd_apply_kernel,
    batch_norm_bwd_sums_kernel,
)
from graphmamba.ops.batch_norm.drop import site_key
from graphmamba.ops.batch_norm.fused_kernels import (
    activate_drop_kernel,
    batch_norm_apply_kernel,
    batch_norm_sums_kernel,
)
from graphmamba.ops.batch_norm.operators import sum_type
from graphmamba.ops.batch_norm.tiles import MOST_LINES, Grid, Tile, Tiles, cut, line_room
from graphmamba.ops.kernel_sizes import starts_early
from graphmamba.ops.operators import either

TILES = Tiles()
DROP_TILE = Tile()
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
    y = x.new_empty(x.shape, dtype=sum_type(x, before, after))
    kept = x.new_empty((2, x.shape[1]), dtype=torch.float32)
    if y.numel() == 0:
        # Without a row no program runs, and nobody reads what is kept.
        return y, kept.zero_()
    sums, apply = cut_rows(x, TILES.sums, MOST_LINES), cut_rows(x, TILES.apply)
    lines = sums.programs[0]
    parts = kept.new_empty((lines, 2, x.shape[1]))
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
        *(x.shape[0], lines, sums.constants["T"], near, far, momentum, eps),
        AFTER_STRIDE=0 if after is None else after.stride(0),
        LINES=line_room(lines),
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and before; of shape (0,) where `before` has that of x."""
    dx, d_weight, d_bias = (each.new_empty(each.shape) for each in (x, weight, bias))
    is_apart = before is not None and (rates[0] > 0 or before.dtype != x.dtype)
    d_before = either(before, x).new_empty(x.shape if is_apart else (0,))
    if dx.numel() == 0:
        return dx, d_weight.zero_(), d_bias.zero_(), d_before
    first, second = starts(x.device)
    places = seed_before, seed_after, count
    parts = backward_sums(
        grad, kept, x, weight, bias, before, *places, activation, rates, sites, start=first
    )
    apply = cut_rows(x, TILES.bwd_apply)
    batch_norm_bwd_apply_kernel[apply.programs](
        *(grad, x, either(before, x), weight, bias, *(either(each, x) for each in places)),
        *(kept, parts, dx, d_before, d_weight, d_bias),
        *(x.shape[0], len(parts), *map(site_key, sites)),
        LINES=line_room(len(parts)),
        WRITES_BEFORE=is_apart,
        TRAINING=is_training,
        **_backward_constants(grad, x, before, count, activation, rates),
        **apply.constants,
        **second,
    )
    return dx, d_weight, d_bias, d_before


def backward_sums(
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
    *,
    start: Start = LATE,
) -> Float[Tensor, "lines 2 channels"]:
    """What each program adds to the gradients of weight and bias."""
    grid = cut_rows(x, TILES.bwd_sums, MOST_LINES)
    parts = kept.new_empty((grid.programs[0], 2, x.shape[1]))
    batch_norm_bwd_sums_kernel[grid.programs](
        *(grad, x, either(before, x), weight, bias, either(seed_before, x), either(seed_after, x)),
        *(either(count, x), kept, parts, x.shape[0], *map(site_key, sites)),
        **_backward_constants(grad, x, before, count, activation, rates),
        **grid.constants,
        **start,
    )
    return parts


def activate_drop(
    x: Rows, grad: Rows | None, seed: Seed, activation: str, rate: float, site: int
) -> Rows:
    """drop(activation(x)), or given the gradient of that, the one of x."""
    rows, channels = x.shape
    out = x.new_empty(x.shape)
    if out.numel() > 0:
        height, width = DROP_TILE.rows, DROP_TILE.channels
        grid = triton.cdiv(rows, height), triton.cdiv(channels, width)
        activate_drop_kernel[grid](
            *(x, either(grad, x), seed, out, rows, site_key(site)),
            CHANNELS=channels,
            X_STRIDE=x.stride(0),
            GRAD_STRIDE=0 if grad is None else grad.stride(0),
            IS_BACKWARD=grad is not None,
            ACTIVATION=activation,
            THRESHOLD=round(rate * 2**32),
            SCALE=1 / (1 - rate),
            T=height,
            C=width,
            num_warps=DROP_TILE.warps,
        )
    return out


def cut_rows(x: Rows, tile: Tile, most: int | None = None) -> Grid:
    """Cut rows into tiles, shared among at most so many programs."""
    rows, channels = x.shape
    return cut(rows, channels, tile, most)


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


def _backward_constants(
    grad: Rows,
    x: Rows,
    before: Rows | None,
    count: Int[Tensor, ""] | None,
    activation: str,
    rates: list[float],
) -> dict[str, Any]:
    """What both kernels of the backward pass are told."""
    return {
        **_constants(x, before, count, rates[0]), **_constants_after(rates[1]),
        "GRAD_STRIDE": grad.stride(0), "ACTIVATION": activation,
    }  # fmt: skip

"""Two batch norms added up on a GPU: which kernels run, on what tiles."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.batch_norm.drop import site_key
from graphmamba.ops.batch_norm.fused import LATE, cut_rows, starts
from graphmamba.ops.batch_norm.operators import sum_type
from graphmamba.ops.batch_norm.pair.backward_kernels import (
    pair_bwd_apply_kernel,
    pair_bwd_sums_kernel,
)
from graphmamba.ops.batch_norm.pair.fused_kernels import pair_apply_kernel, pair_sums_kernel
from graphmamba.ops.batch_norm.pair.operators import is_apart
from graphmamba.ops.batch_norm.tiles import Tile, Tiles, line_room
from graphmamba.ops.operators import either

WIDE = Tile(warps=8, programs=264, unroll=1)
"""Twice the warps of a single norm hold what both read, two programs on each processor."""
TILES = Tiles(sums=Tile(programs=264, unroll=1), apply=WIDE, bwd_sums=WIDE, bwd_apply=WIDE)
"""Both norms are summed up beside each other: the programs of `sums` are those of each."""
MOST_LINES = 64
"""Half of a single norm's, since lines are twice as long."""
SUMS = 3
"""Of a line of the backward pass: for both weights, and for either bias."""

Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]
Number = Int[Tensor, ""]
Kept = Float[Tensor, "norms two channels"]


def forward(
    a: Rows,
    b: Rows,
    before: Rows | None,
    weight_a: Channels,
    bias_a: Channels,
    weight_b: Channels,
    bias_b: Channels,
    seed: Number | None,
    count: Number | None,
    mean_a: Channels,
    var_a: Channels,
    batches_a: Number | None,
    mean_b: Channels,
    var_b: Channels,
    batches_b: Number | None,
    rate: float,
    site: int,
    is_training: bool,
    momenta: list[float],
    eps: list[float],
) -> tuple[Rows, Kept]:
    """Output, and mean and 1 / deviation of both; in training the running ones are moved."""
    rows, channels = a.shape
    y = a.new_empty(a.shape, dtype=sum_type(a, b, before))
    kept = a.new_empty((2, 2, channels), dtype=torch.float32)
    if y.numel() == 0:
        # Without a row no program runs, and nobody reads what is kept.
        return y, kept.zero_()
    sums, apply = cut_rows(a, TILES.sums, MOST_LINES), cut_rows(a, TILES.apply)
    lines = sums.programs[0]
    parts = [kept.new_empty((lines, 2, channels)) for _ in range(2)]
    constants = _constants(a, b, before, count, rate)
    first, second = starts(a.device) if is_training else (LATE, LATE)
    if is_training:
        pair_sums_kernel[(*sums.programs, 2)](
            *(a, b, either(before, b), either(seed, a), either(count, a)),
            *(*parts, rows, site_key(site)),
            **constants,
            **sums.constants,
            **first,
        )
    pair_apply_kernel[apply.programs](
        *(a, b, either(before, b), weight_a, bias_a, mean_a, var_a, either(batches_a, a)),
        *(weight_b, bias_b, mean_b, var_b, either(batches_b, a), either(seed, a), either(count, a)),
        *(*parts, y, *kept, rows, lines, sums.constants["T"], site_key(site), *momenta, *eps),
        LINES=line_room(lines),
        HAS_BATCHES_A=batches_a is not None,
        HAS_BATCHES_B=batches_b is not None,
        TRAINING=is_training,
        **constants,
        **apply.constants,
        **second,
    )
    return y, kept


def backward(
    grad: Rows,
    kept: Kept,
    a: Rows,
    b: Rows,
    before: Rows | None,
    weight_a: Channels,
    weight_b: Channels,
    seed: Number | None,
    count: Number | None,
    rate: float,
    site: int,
    is_training: bool,
) -> list[Tensor]:
    """Gradients of a, b, before, both weights and both biases.

    That of before has shape (0,) where it is that of b.
    """
    da, db = a.new_empty(a.shape), b.new_empty(b.shape)
    d_before = either(before, b).new_empty(a.shape if is_apart(b, before, rate) else (0,))
    shared = [each.new_empty(each.shape) for each in (weight_a, weight_b, weight_a, weight_b)]
    if da.numel() == 0:
        return [da, db, d_before, *(each.zero_() for each in shared)]
    sums, apply = cut_rows(a, TILES.bwd_sums, MOST_LINES), cut_rows(a, TILES.bwd_apply)
    lines = sums.programs[0]
    parts = kept.new_empty((lines, SUMS, a.shape[1]))
    places = either(seed, a), either(count, a)
    inputs = grad, a, b, either(before, b), weight_a, weight_b, *places, *kept
    constants = {**_constants(a, b, before, count, rate), "GRAD_STRIDE": grad.stride(0)}
    first, second = starts(a.device)
    pair_bwd_sums_kernel[sums.programs](
        *(*inputs, parts, a.shape[0], site_key(site)), **constants, **sums.constants, **first
    )
    pair_bwd_apply_kernel[apply.programs](
        *(*inputs, parts, da, db, d_before, *shared, a.shape[0], lines, site_key(site)),
        LINES=line_room(lines),
        WRITES_BEFORE=d_before.numel() > 0,
        TRAINING=is_training,
        **constants,
        **apply.constants,
        **second,
    )
    return [da, db, d_before, *shared]


def _constants(
    a: Rows, b: Rows, before: Rows | None, count: Number | None, rate: float
) -> dict[str, Any]:
    """What all kernels are told."""
    return {
        "CHANNELS": a.shape[1], "A_STRIDE": a.stride(0), "B_STRIDE": b.stride(0),
        "BEFORE_STRIDE": 0 if before is None else before.stride(0),
        "HAS_BEFORE": before is not None, "HAS_COUNT": count is not None,
        "THRESHOLD": round(rate * 2**32), "SCALE": 1 / (1 - rate),
    }  # fmt: skip

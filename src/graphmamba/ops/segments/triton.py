"""Launches the Triton kernels of sums and maxima over segments."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.segments.triton_kernels import (
    segment_max_bwd_kernel,
    segment_max_join_kernel,
    segment_max_kernel,
    segment_sum_kernel,
)
from graphmamba.ops.triton_launch import ceil_div, power_of_two


@dataclass(frozen=True)
class Tile:
    """Tile of one program: some nodes with some edges each, by channels."""

    edges: int = 32
    channels: int = 32
    warps: int = 4
    at_once: int = 4  # least number of edges per node in a tile
    rounds: int = 4  # iterations over all nodes of a tile; nodes with more edges are hubs


@dataclass(frozen=True)
class Grid:
    """Number of programs, over nodes and channels, and constexpr arguments of a kernel."""

    programs: int
    constants: dict[str, Any]


def partition(nodes: int, edges: int, channels: int, tile: Tile) -> Grid:
    """Choose the grid from shapes alone: reading degrees would synchronise the GPU."""
    mean = power_of_two(ceil_div(edges, max(nodes, 1)))
    at_once = min(max(mean, tile.at_once), tile.edges)
    blocks, side_by_side = ceil_div(channels, tile.channels), tile.edges // at_once
    constants = {
        "CHANNELS": channels, "BLOCKS": blocks, "T": side_by_side, "K": at_once,
        "C": tile.channels, "ROUNDS": tile.rounds, "num_warps": tile.warps,
    }  # fmt: skip
    return Grid(ceil_div(nodes, side_by_side) * blocks, constants)


TILE = Tile(edges=256, warps=8)  # larger than for other kernels: there is only one sum


def segment_sum(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],  # noqa: ARG001 - the places are known by `ptr` and `order`
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " rows"] | None,
) -> Float[Tensor, "places channels"]:
    """Sum the rows of each segment."""
    (count, channels), places = rows.shape, ptr.shape[0] - 1
    out = rows.new_empty((places, channels))
    grid = partition(places, count, channels, TILE)
    if out.numel() > 0:
        segment_sum_kernel[(grid.programs,)](
            rows, ptr, ptr if order is None else order, out, places, STRIDE=rows.stride(0),
            HAS_ORDER=order is not None, **grid.constants,
        )  # fmt: skip
    return out


BLOCK_ROWS = 32
BLOCK_CHANNELS = 64
WARPS = 4
MOST_PARTS = 32  # programs per segment; a second kernel combines their maxima


def parts_of(rows: int, places: int) -> int:
    """Number of programs per segment: one tile each if all segments were equally long."""
    mean = ceil_div(rows, max(places, 1))
    return min(power_of_two(max(ceil_div(mean, BLOCK_ROWS), 1)), MOST_PARTS)


def segment_max(
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],  # noqa: ARG001 - the places are known by `ptr`
    ptr: Int[Tensor, " boundaries"],
) -> tuple[Float[Tensor, "places channels"], Int[Tensor, "places channels"]]:
    """Return the maxima, and the number of rows tied for each."""
    (count, channels), places = rows.shape, ptr.shape[0] - 1
    top = rows.new_empty((places, channels))
    shared = torch.empty((places, channels), dtype=torch.int32, device=rows.device)
    if not top.numel():
        return top, shared
    parts, blocks = parts_of(count, places), ceil_div(channels, BLOCK_CHANNELS)
    outputs = top, shared
    if parts > 1:
        shape = 2, places, parts, channels
        partial = torch.empty(shape, dtype=torch.float32, device=rows.device)
        outputs = partial[0], partial[1].view(torch.int32)
    sizes = {"CHANNELS": channels, "PARTS": parts, "C": BLOCK_CHANNELS, "num_warps": WARPS}
    segment_max_kernel[(places * parts, blocks)](
        rows, ptr, *outputs, STRIDE=rows.stride(0), R=BLOCK_ROWS, **sizes
    )
    if parts > 1:
        segment_max_join_kernel[(places, blocks)](*outputs, top, shared, **sizes)
    return top, shared


def segment_max_backward(
    grad: Float[Tensor, "places channels"],
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    top: Float[Tensor, "places channels"],
    count: Int[Tensor, "places channels"],
) -> Float[Tensor, "rows channels"]:
    """Return the gradient of the rows."""
    d_rows = rows.new_empty(rows.shape)
    if d_rows.numel():
        length, channels = rows.shape
        grid = ceil_div(length, BLOCK_ROWS), ceil_div(channels, BLOCK_CHANNELS)
        segment_max_bwd_kernel[grid](
            grad.contiguous(), rows, index, top, count, d_rows, length, CHANNELS=channels,
            STRIDE=rows.stride(0), R=BLOCK_ROWS, C=BLOCK_CHANNELS, num_warps=WARPS,
        )  # fmt: skip
    return d_rows

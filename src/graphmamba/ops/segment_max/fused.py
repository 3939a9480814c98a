"""The greatest row of each place on a GPU: which kernels run, on what tiles."""

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.segment_max.fused_kernels import (
    segment_max_bwd_kernel,
    segment_max_join_kernel,
    segment_max_kernel,
)

BLOCK_ROWS = 32
BLOCK_CHANNELS = 64
WARPS = 4
MOST_PARTS = 32
"""Programs that share the rows of a place; what each finds is compared once more."""


def parts_of(rows: int, places: int) -> int:
    """Cut places by what the shapes tell: a tile for each program, were all equally long."""
    mean = triton.cdiv(rows, max(places, 1))
    return min(triton.next_power_of_2(max(triton.cdiv(mean, BLOCK_ROWS), 1)), MOST_PARTS)


def forward(
    rows: Float[Tensor, "rows channels"], ptr: Int[Tensor, " boundaries"]
) -> tuple[Float[Tensor, "places channels"], Int[Tensor, "places channels"]]:
    """Return the greatest entries, and how many rows share each."""
    (count, channels), places = rows.shape, ptr.shape[0] - 1
    top = rows.new_empty((places, channels))
    shared = torch.empty((places, channels), dtype=torch.int32, device=rows.device)
    if not top.numel():
        return top, shared
    parts, blocks = parts_of(count, places), triton.cdiv(channels, BLOCK_CHANNELS)
    found = top, shared
    if parts > 1:
        shape = 2, places, parts, channels
        partial = torch.empty(shape, dtype=torch.float32, device=rows.device)
        found = partial[0], partial[1].view(torch.int32)
    sizes = {"CHANNELS": channels, "PARTS": parts, "C": BLOCK_CHANNELS, "num_warps": WARPS}
    segment_max_kernel[(places * parts, blocks)](
        rows, ptr, *found, STRIDE=rows.stride(0), R=BLOCK_ROWS, **sizes
    )
    if parts > 1:
        segment_max_join_kernel[(places, blocks)](*found, top, shared, **sizes)
    return top, shared


def backward(
    grad: Float[Tensor, "places channels"],
    rows: Float[Tensor, "rows channels"],
    index: Int[Tensor, " rows"],
    top: Float[Tensor, "places channels"],
    count: Int[Tensor, "places channels"],
) -> Float[Tensor, "rows channels"]:
    """Return the gradient of the rows."""
    found = rows.new_empty(rows.shape)
    if found.numel():
        length, channels = rows.shape
        grid = triton.cdiv(length, BLOCK_ROWS), triton.cdiv(channels, BLOCK_CHANNELS)
        segment_max_bwd_kernel[grid](
            *(grad, rows, index, top, count, found, length),
            CHANNELS=channels,
            STRIDE=rows.stride(0),
            R=BLOCK_ROWS,
            C=BLOCK_CHANNELS,
            num_warps=WARPS,
        )
    return found

"""The sum over categories on a GPU: which kernels run, on what tiles."""

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.category_sum.fused_kernels import (
    category_sum_bwd_kernel,
    category_sum_fwd_kernel,
)

BLOCK_ROWS = 32
BLOCK_ENTRIES = 64
LEAST_ENTRIES = 16
"""Height of the smallest tile that tensor cores take."""
BLOCK_CHANNELS = 32
WARPS = 4
MOST_PARTS = 64
"""Programs that share the rows; each leaves a matrix of sums to be added up."""


def forward(
    columns: Int[Tensor, "rows columns"],
    offsets: Int[Tensor, " columns"],
    weight: Float[Tensor, "entries channels"],
) -> Float[Tensor, "rows channels"]:
    """Output."""
    (rows, width), channels = columns.shape, weight.shape[1]
    out = weight.new_empty(rows, channels)
    if out.numel():
        grid = triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(channels, BLOCK_CHANNELS)
        category_sum_fwd_kernel[grid](
            *(columns.contiguous(), offsets, weight.contiguous(), out, rows),
            weight.shape[0],
            COLUMNS=width,
            CHANNELS=channels,
            T=BLOCK_ROWS,
            C=BLOCK_CHANNELS,
            num_warps=WARPS,
        )
    return out


def backward(
    grad: Float[Tensor, "rows channels"],
    columns: Int[Tensor, "rows columns"],
    offsets: Int[Tensor, " columns"],
    entries: int,
) -> Float[Tensor, "entries channels"]:
    """Gradient of the vectors."""
    (rows, channels), width = grad.shape, columns.shape[1]
    tiles = triton.cdiv(rows, BLOCK_ROWS)
    parts = min(max(tiles, 1), MOST_PARTS)
    sums = torch.empty(parts, entries, channels, dtype=torch.float32, device=grad.device)
    if sums.numel():
        block = min(max(triton.next_power_of_2(entries), LEAST_ENTRIES), BLOCK_ENTRIES)
        across = triton.cdiv(entries, block), triton.cdiv(channels, BLOCK_CHANNELS)
        category_sum_bwd_kernel[(parts, *across)](
            *(grad.contiguous(), columns.contiguous(), offsets, sums),
            *(rows, entries, triton.cdiv(tiles, parts)),
            COLUMNS=width,
            CHANNELS=channels,
            T=BLOCK_ROWS,
            V=block,
            C=BLOCK_CHANNELS,
            num_warps=WARPS,
        )
    return sums.sum(dim=0)

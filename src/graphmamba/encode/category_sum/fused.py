"""The sum over categories on a GPU: which kernels run, on what tiles."""

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.category_sum.fused_kernels import (
    category_sum_bwd_kernel,
    category_sum_fwd_kernel,
)
from graphmamba.kernel_sizes import block_of
from graphmamba.line_sums import add_lines, share

BLOCK_ROWS = 32
BLOCK_ENTRIES = 32
BLOCK_CHANNELS = 32
MOST_CHANNELS = 128
"""Who names what is found once for all channels of a block, so that gradients take wide ones."""
FORWARD_WARPS, BACKWARD_WARPS = 4, 2
"""With four warps and more entries, Triton takes products that want the gradients turned round in
shared memory, number by number."""
PROGRAMS = 660
"""Of a gradient: five for each of an H200's processors."""


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
            num_warps=FORWARD_WARPS,
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
    if not (rows and entries and channels):
        return grad.new_zeros(entries, channels)
    block = block_of(entries, BLOCK_ENTRIES)
    wide = block_of(channels, MOST_CHANNELS, least=BLOCK_CHANNELS)
    across = triton.cdiv(entries, block), triton.cdiv(channels, wide)
    most = PROGRAMS // (across[0] * across[1])
    tiles, parts = share(rows, BLOCK_ROWS, most, entries * channels)
    sums = torch.empty(parts, entries * channels, dtype=torch.float32, device=grad.device)
    category_sum_bwd_kernel[(parts, *across)](
        *(grad.contiguous(), columns.contiguous(), offsets, sums, rows, entries, tiles),
        COLUMNS=width,
        CHANNELS=channels,
        T=BLOCK_ROWS,
        V=block,
        C=wide,
        num_warps=BACKWARD_WARPS,
    )
    total = sums.new_empty(entries, channels)
    add_lines(sums, total)
    return total

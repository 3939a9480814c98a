"""Rows of length 1 on a GPU: which kernel runs, on what tiles."""

import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.encode.unit_rows.fused_kernels import unit_rows_bwd_kernel, unit_rows_fwd_kernel
from graphmamba.kernel_sizes import block_of

TILE = 1024
"""Numbers of a program: short of them, rows of a small batch would leave processors idle."""
WARPS = 4

Rows = Float[Tensor, "rows channels"]


def forward(x: Rows, has_relu: bool) -> Rows:
    """Scale the rows."""
    y = x.new_empty(x.shape)
    if y.numel():
        grid, sizes = _tiles(x, has_relu)
        unit_rows_fwd_kernel[grid](x, y, x.shape[0], X_STRIDE=x.stride(0), **sizes)
    return y


def backward(grad: Rows, x: Rows, has_relu: bool) -> Rows:
    """Return the gradient of the rows."""
    found = x.new_empty(x.shape)
    if found.numel():
        grid, sizes = _tiles(x, has_relu)
        strides = {"GRAD_STRIDE": grad.stride(0), "X_STRIDE": x.stride(0)}
        unit_rows_bwd_kernel[grid](grad, x, found, x.shape[0], **strides, **sizes)
    return found


def _tiles(x: Rows, has_relu: bool) -> tuple[tuple[int], dict[str, int]]:
    rows, channels = x.shape
    block = block_of(channels)
    tile = max(TILE // block, 1)
    sizes = {"CHANNELS": channels, "R": tile, "C": block, "HAS_RELU": has_relu, "num_warps": WARPS}
    return (triton.cdiv(rows, tile),), sizes

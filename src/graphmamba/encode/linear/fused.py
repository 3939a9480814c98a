"""The gradients of a linear map on a GPU: which kernels run, on what tiles."""

import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.encode.linear.fused_kernels import (
    column_sums_kernel,
    narrow_fwd_kernel,
    weight_grad_kernel,
)
from graphmamba.kernel_sizes import block_of
from graphmamba.line_sums import add_lines, share

BLOCK_ROWS = 32
NARROW_ROWS, NARROW_BLOCK = 32, 128
MOST_BLOCK = 32
"""Channels of a block that one warp holds."""
WARPS = 1
"""With four, Triton takes products that want both operands turned round in shared memory, number
by number: that took five times as long as all the rest."""
PROGRAMS = 1056
"""Eight for each of an H200's processors."""
LEAST_LINES = 16
"""Programs that share the rows, however large the weight is."""
STAGES = 3
SUM_ROWS, SUM_CHANNELS = 64, 32

Rows = Float[Tensor, "rows out"]
Inputs = Float[Tensor, "rows in"]
Weight = Float[Tensor, "out in"]


def narrow(x: Inputs, weight: Weight, bias: Float[Tensor, " out"] | None) -> Rows:
    """Map rows of few columns, for which PyTorch takes kernels that are made for many."""
    (rows, inward), out = x.shape, weight.shape[0]
    y = x.new_empty(rows, out)
    if y.numel():
        block = block_of(out, NARROW_BLOCK)
        narrow_fwd_kernel[(triton.cdiv(rows, NARROW_ROWS), triton.cdiv(out, block))](
            *(x, weight, weight if bias is None else bias, y, rows),
            OUT=out,
            IN=inward,
            X_STRIDE=x.stride(0),
            R=NARROW_ROWS,
            OB=block,
            HAS_BIAS=bias is not None,
            num_warps=4,
        )
    return y


def weight_grad(grad: Rows, x: Inputs, has_bias: bool) -> tuple[Weight, Float[Tensor, " _"]]:
    """Gradients of weight and bias by tensor cores, with TF32; an empty one for no bias."""
    (rows, out), inward = grad.shape, x.shape[1]
    if rows == 0:
        return grad.new_zeros(out, inward), grad.new_zeros(out if has_bias else 0)
    height, width = block_of(out, MOST_BLOCK), block_of(inward, MOST_BLOCK)
    across = triton.cdiv(out, height), triton.cdiv(inward, width)
    line = out * inward + (out if has_bias else 0)
    most = PROGRAMS // (across[0] * across[1])
    tiles, programs = share(rows, BLOCK_ROWS, most, line, LEAST_LINES)
    lines = grad.new_empty(programs, line)
    weight_grad_kernel[(programs, *across)](
        *(grad, x, lines, rows, tiles),
        OUT=out,
        IN=inward,
        GRAD_STRIDE=grad.stride(0),
        X_STRIDE=x.stride(0),
        LINE=line,
        R=BLOCK_ROWS,
        OB=height,
        IB=width,
        STAGES=STAGES,
        HAS_BIAS=has_bias,
        num_warps=WARPS,
    )
    d_weight, d_bias = grad.new_empty(out, inward), grad.new_empty(line - out * inward)
    add_lines(lines, d_weight, d_bias)
    return d_weight, d_bias


def column_sums(grad: Rows) -> Float[Tensor, " out"]:
    """Gradient of the bias alone, in full precision."""
    rows, out = grad.shape
    if rows == 0:
        return grad.new_zeros(out)
    across = triton.cdiv(out, SUM_CHANNELS)
    tiles, programs = share(rows, SUM_ROWS, PROGRAMS // across, out, LEAST_LINES)
    lines = grad.new_empty(programs, out)
    column_sums_kernel[(programs, across)](
        *(grad, lines, rows, tiles),
        OUT=out,
        GRAD_STRIDE=grad.stride(0),
        R=SUM_ROWS,
        OB=SUM_CHANNELS,
        num_warps=4,
    )
    sums = grad.new_empty(out)
    add_lines(lines, sums)
    return sums

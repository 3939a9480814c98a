"""The gradients of a linear map on a GPU: which kernels run, on what tiles."""

from dataclasses import dataclass

import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.kernel_sizes import block_of
from graphmamba.ops.line_sums import add_lines, share
from graphmamba.ops.linear.fused_kernels import (
    column_sums_kernel,
    narrow_fwd_kernel,
    weight_grad_kernel,
)

NARROW_ROWS, NARROW_BLOCK = 32, 128
WARPS = 1
"""With four, Triton takes products that want both operands turned round in shared memory, number
by number: that took five times as long as all the rest."""
LEAST_LINES = 16
"""Programs that share the rows, however large the weight is."""
SUM_PROGRAMS = 1056
SUM_ROWS, SUM_CHANNELS = 64, 32


@dataclass(frozen=True)
class Block:
    """How the gradient of a weight is shared out."""

    channels: int
    """Of a block that one warp holds, out and in."""
    rows: int
    """That it takes at a time."""
    stages: int
    """Such rows that are on their way at a time."""
    programs: int
    """At most."""


SMALL, LARGE = Block(32, 32, 3, 1056), Block(64, 16, 4, 528)
"""Large ones read rows less often; eight and four programs for each of an H200's processors."""
MOST_MORE = 4 / 3
"""Numbers that large blocks may have beyond those of small ones, filled up to whole blocks."""

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
    block = weight_block(out, inward)
    height, width = block_of(out, block.channels), block_of(inward, block.channels)
    across = triton.cdiv(out, height), triton.cdiv(inward, width)
    line = out * inward + (out if has_bias else 0)
    most = block.programs // (across[0] * across[1])
    tiles, programs = share(rows, block.rows, most, line, LEAST_LINES)
    lines = grad.new_empty(programs, line)
    weight_grad_kernel[(programs, *across)](
        *(grad, x, lines, rows, tiles),
        OUT=out,
        IN=inward,
        GRAD_STRIDE=grad.stride(0),
        X_STRIDE=x.stride(0),
        LINE=line,
        R=block.rows,
        OB=height,
        IB=width,
        STAGES=block.stages,
        HAS_BIAS=has_bias,
        num_warps=WARPS,
    )
    d_weight, d_bias = grad.new_empty(out, inward), grad.new_empty(line - out * inward)
    add_lines(lines, d_weight, d_bias)
    return d_weight, d_bias


def weight_block(out: int, inward: int) -> Block:
    """Choose blocks; large ones must not be much emptier.

    Example:
        >>> weight_block(384, 96).channels, weight_block(96, 96).channels
        (64, 32)
    """

    def filled(block: Block) -> int:
        blocks = triton.cdiv(out, block.channels) * triton.cdiv(inward, block.channels)
        return int(blocks * block.channels**2)

    return LARGE if filled(LARGE) <= MOST_MORE * filled(SMALL) else SMALL


def column_sums(grad: Rows) -> Float[Tensor, " out"]:
    """Gradient of the bias alone, in full precision."""
    rows, out = grad.shape
    if rows == 0:
        return grad.new_zeros(out)
    across = triton.cdiv(out, SUM_CHANNELS)
    tiles, programs = share(rows, SUM_ROWS, SUM_PROGRAMS // across, out, LEAST_LINES)
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

"""Linear maps of a layer on a GPU, their gradients, and what follows the first one of two."""

from dataclasses import dataclass

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.activation import Activation
from graphmamba.ops.dropout import site_key
from graphmamba.ops.graph_mamba_layer.triton_kernels import (
    activate_drop_kernel,
    narrow_product_kernel,
    narrow_rows_grad_kernel,
    weight_grad_kernel,
)
from graphmamba.ops.triton_launch import add_partial_sums

Rows = Float[Tensor, "rows channels"]
LEAST_BLOCK = 16
"""What tensor cores take at least."""
LEAST_PROGRAMS = 16
"""Programs that divide the rows among them, however large the weight is."""
MOST_BYTES = 8 << 20
"""Of all partial sums: with more, adding them up would take longer than the programs save."""


@dataclass(frozen=True)
class Block:
    """How the gradient of a weight is divided."""

    channels: int
    """Of a block that one warp holds, out and in."""
    rows: int
    """That it takes at a time."""
    stages: int
    """Such rows that are on their way at a time."""
    programs: int
    """At most."""


SMALL, LARGE = Block(32, 32, 3, 1056), Block(64, 16, 4, 528)
"""Large ones read rows less often; eight and four programs for each of an H200's processors.

One warp each: with four, Triton transposes both operands in shared memory number by number."""
MOST_MORE = 4 / 3
"""Numbers that large blocks may have beyond those of small ones, filled up to whole blocks."""


def linear(x: Rows, weight: Float[Tensor, "out in"], bias: Tensor | None = None) -> Rows:
    """X W^T + b in the type of the rows."""
    weight = weight.to(x.dtype)
    if bias is None:
        return x @ weight.t()
    return torch.addmm(bias.to(x.dtype), x, weight.t())


def narrow_linear(x: Rows, weight: Float[Tensor, "out in"]) -> Rows:
    """X W^T for rows of few columns, for which cuBLAS takes kernels that are made for many."""
    (rows, inward), out = x.shape, weight.shape[0]
    y = x.new_empty(rows, out)
    if y.numel():
        block = min(_block_of(out), 128)
        narrow_product_kernel[(triton.cdiv(rows, 32), triton.cdiv(out, block))](
            *(x, weight, y, rows), OUT=out, IN=inward, X_STRIDE=x.stride(0), R=32, OB=block,
            num_warps=4,
        )  # fmt: skip
    return y


def narrow_rows_grad(grad: Rows, weight: Float[Tensor, "out in"], *others: Rows) -> Rows:
    """Gradient of the rows that `narrow_linear` mapped, and two others beside it."""
    rows, out = grad.shape
    inward, width = weight.shape[1], others[0].shape[1]
    made = grad.new_empty(rows, inward + 2 * width)
    if made.numel():
        narrow_rows_grad_kernel[(triton.cdiv(rows, 16),)](
            *(grad, weight, *others, made, rows), OUT=out, IN=inward, WIDTH=width, R=16,
            OB=_block_of(out), WB=_block_of(width), num_warps=4,
        )  # fmt: skip
    return made


def weight_grad(
    grad: Rows, x: Rows, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Gradients of weight and bias, in one pass over the rows."""
    (rows, out), inward = grad.shape, x.shape[1]
    d_weight, d_bias = torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
    if rows == 0:
        return d_weight.zero_(), None if d_bias is None else d_bias.zero_()
    block = weight_block(out, inward)
    height, width = (min(_block_of(size), block.channels) for size in (out, inward))
    across = triton.cdiv(out, height), triton.cdiv(inward, width)
    part = out * inward + (0 if bias is None else out)
    most = min(block.programs // (across[0] * across[1]), MOST_BYTES // (4 * part))
    tiles = triton.cdiv(triton.cdiv(rows, block.rows), max(LEAST_PROGRAMS, most))
    programs = triton.cdiv(rows, tiles * block.rows)
    parts = grad.new_empty((programs, part), dtype=torch.float32)
    is_exact = grad.is_cuda and torch.backends.cuda.matmul.fp32_precision != "tf32"
    weight_grad_kernel[(programs, *across)](
        *(grad, x, parts, rows, tiles), OUT=out, IN=inward, GRAD_STRIDE=grad.stride(0),
        X_STRIDE=x.stride(0), PART=part, R=block.rows, OB=height, IB=width, STAGES=block.stages,
        HAS_BIAS=bias is not None, PRECISION="ieee" if is_exact else "tf32", num_warps=1,
    )  # fmt: skip
    add_partial_sums(parts, d_weight, *([] if d_bias is None else [d_bias]))
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


def activate_drop(
    x: Rows, activation: Activation, rate: float, site: int, seed: Int[Tensor, ""] | None,
    grad: Rows | None = None,
) -> Rows:  # fmt: skip
    """drop(activation(x)), or given the gradient of that, the one of x.

    For a ReLU, `x` may be what came out: it is 0 where the input was cut off.
    """
    rows, channels = x.shape
    out = torch.empty_like(x)
    if out.numel():
        height, width = 32, 64
        activate_drop_kernel[(triton.cdiv(rows, height), triton.cdiv(channels, width))](
            *(x, x if grad is None else grad, x if seed is None else seed, out, rows),
            site_key(site), CHANNELS=channels, T=height, C=width, IS_BACKWARD=grad is not None,
            ACTIVATION=activation, THRESHOLD=round(rate * 2**32), SCALE=1 / (1 - rate),
            num_warps=4,
        )  # fmt: skip
    return out


def _block_of(size: int) -> int:
    block: int = max(triton.next_power_of_2(size), LEAST_BLOCK)
    return block

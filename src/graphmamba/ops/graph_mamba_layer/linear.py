"""Linear maps of the layer on a GPU, their gradients, activation with dropout, centred sums."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.activation import Activation
from graphmamba.ops.dropout import site_key
from graphmamba.ops.graph_mamba_layer.triton_kernels import (
    activate_drop_kernel,
    center_kernel,
    held_product_kernel,
    narrow_product_kernel,
    narrow_rows_grad_kernel,
    pieces_product_kernel,
    weight_grad_kernel,
)
from graphmamba.ops.registration import either
from graphmamba.ops.triton_launch import add_partial_sums, ceil_div, power_of_two

Rows = Float[Tensor, "rows channels"]
# Our kernels are faster than cuBLAS for weights with LEAST_SMALL to MOST_SMALL channels, in the
# forward pass with at most MOST_OUT outputs, and from FEWEST_ROWS rows on.
LEAST_SMALL, MOST_SMALL = 32, 384
MOST_OUT = 256
FEWEST_ROWS = 1024
PROCESSORS = 132  # of an H200
MOST_HELD = 8192  # entries of a matrix that a program keeps; more would lower the occupancy
MOST_CHANNELS = 128  # of a program's block
FOUR_FIT = 128  # registers per thread with which four programs of four warps fit on a processor
LEAST_BLOCK = 16  # smallest dimension of `tl.dot`
LEAST_PROGRAMS = 16  # that share the rows of a weight gradient
CENTERED_CHANNELS = 32  # of a program of `center_kernel`
FEW = 128  # partial sums of `column_sums`
MOST_BYTES = 3 << 20  # of all partial sums of a weight gradient


@dataclass(frozen=True)
class Block:
    """Block configuration of the gradient of a weight."""

    channels: int  # of a square block, which one warp computes
    rows: int  # per iteration
    stages: int  # of the software pipeline
    programs: int  # at most


# LARGE reads rows less often; 8 and 4 programs per processor of an H200. One warp each: with four,
# Triton would transpose both operands in shared memory entry by entry.
SMALL, LARGE = Block(32, 32, 3, 1056), Block(64, 16, 4, 528)
MOST_MORE = 4 / 3  # padded size with LARGE relative to SMALL up to which LARGE is used


def linear(
    x: Rows, weight: Float[Tensor, "out in"], bias: Tensor | None = None, *, is_relu: bool = False
) -> Rows:
    """X W^T + b in the type of the rows, then a ReLU if `is_relu`."""
    if is_ours_faster(x, weight) and weight.shape[0] <= MOST_OUT:
        return multiply(x, weight.t(), bias=bias, is_relu=is_relu)
    weight = weight.to(x.dtype)
    y = x @ weight.t() if bias is None else torch.addmm(bias.to(x.dtype), x, weight.t())
    return y.relu_() if is_relu else y


def transposed_copy(weight: Float[Tensor, "out in"], dtype: torch.dtype) -> Float[Tensor, "out in"]:
    """Copy a weight to column-major layout, in which `rows_grad` reads it fastest."""
    return weight.t().to(dtype).contiguous().t()


def rows_grad(
    grad: Float[Tensor, "rows out"], weight: Float[Tensor, "out in"], more: Rows | None = None
) -> Rows:
    """Gradient of the input of `linear`, plus `more`."""
    if is_ours_faster(grad, weight):
        return multiply(grad, weight, other=more)
    weight = weight.to(grad.dtype)
    return grad @ weight if more is None else torch.addmm(more, grad, weight)


def relu_grad(grad: Float[Tensor, "rows out"], weight: Float[Tensor, "out in"], y: Rows) -> Rows:
    """Gradient of x in linear(y), y = relu(x)."""
    if is_ours_faster(grad, weight):
        return multiply(grad, weight, other=y, is_cut=True)
    return torch.ops.aten.threshold_backward(grad @ weight.to(grad.dtype), y, 0)


def is_ours_faster(rows: Rows, weight: Float[Tensor, "out in"]) -> bool:
    """Whether our kernels, which round to TF32, multiply rows by a weight."""
    if not rows.is_cuda:
        return rows.dtype == torch.float32 and rows.shape[0] > 0
    may_round = torch.backends.cuda.matmul.fp32_precision == "tf32"
    is_usual = min(weight.shape) >= LEAST_SMALL and max(weight.shape) <= MOST_SMALL
    is_single = rows.dtype == torch.float32
    return may_round and is_usual and is_single and rows.shape[0] >= FEWEST_ROWS


@dataclass(frozen=True)
class Tiles:
    """Tile configuration of a product.

    With `programs`, so many run on each processor, and each keeps its block of the matrix for
    several tiles. Otherwise there is one per tile, which loads the matrix in pieces.
    """

    rows: int  # of a tile
    channels: int  # of the block of the product that a program computes
    warps: int
    programs: int = 0
    piece: int = 0  # rows of the matrix per iteration
    stages: int = 1  # of the software pipeline
    registers: int | None = None  # per thread, at most


def tiles_of(inward: int, out: int, is_transposed: bool) -> Tiles:
    """Choose tiles for a matrix of shape [inward, out].

    With four warps and 64 rows Triton uses warp-group products (wgmma), which need a row-major
    matrix; a transposed weight is multiplied by two warps.
    """
    channels = sum(in_two(ceil_div(out, ceil_div(out, MOST_CHANNELS))))
    if _block_of(inward) * _block_of(channels) <= MOST_HELD:
        return Tiles(rows=32, channels=_block_of(channels), warps=4, programs=4, registers=FOUR_FIT)
    if is_transposed:
        # a matrix of few rows is loaded as a whole
        stages = 4 if inward <= MOST_CHANNELS else 3
        return Tiles(rows=64, channels=channels, warps=2, piece=32, stages=stages)
    return Tiles(rows=64, channels=_block_of(channels), warps=4, piece=32, stages=3)


def in_two(size: int) -> tuple[int, int]:
    """Return two powers of two whose sum is at least `size`, or (one, 0) if that is no larger.

    Example:
        >>> in_two(96), in_two(100), in_two(64)
        ((64, 32), (128, 0), (64, 0))
    """
    whole = _block_of(size)
    rest = _block_of(max(size - whole // 2, 1))
    return (whole, 0) if whole // 2 + rest >= whole else (whole // 2, rest)


def multiply(
    x: Float[Tensor, "rows k"],
    matrix: Float[Tensor, "k n"],
    *,
    bias: Float[Tensor, " n"] | None = None,
    other: Float[Tensor, "rows n"] | None = None,
    is_cut: bool = False,
    is_relu: bool = False,
    tiles: Tiles | None = None,
) -> Float[Tensor, "rows n"]:
    """X M + b + other, then a ReLU if `is_relu`; with `is_cut`, X M + b where other > 0, else 0.

    Programs of the same rows have consecutive numbers, so that the rows are in the cache.
    """
    (rows, inward), out = x.shape, matrix.shape[1]
    y = x.new_empty(rows, out)
    tiles = tiles or tiles_of(inward, out, is_transposed=matrix.stride(0) != 1)
    across, down = ceil_div(out, tiles.channels), ceil_div(rows, tiles.rows)
    constants: dict[str, Any] = {
        "K": inward, "N": out, "AT_K": matrix.stride(0), "AT_N": matrix.stride(1),
        "X_STRIDE": x.stride(0), "OTHER_STRIDE": 0 if other is None else other.stride(0),
        "R": tiles.rows, "HAS_BIAS": bias is not None, "HAS_OTHER": other is not None,
        "IS_CUT": is_cut, "IS_RELU": is_relu, "ROUNDS": x.is_cuda, "num_warps": tiles.warps,
    }  # fmt: skip
    arguments = x, matrix, either(bias, x), either(other, x), y, rows
    if tiles.programs:
        down = min(down, max(1, PROCESSORS * tiles.programs // across))
        first, second = in_two(inward)
        half = max(first // 2, LEAST_BLOCK)
        first, second = (first, second) if second else (half, half)
        held_product_kernel[(across * down,)](
            *arguments, KA=first, KB=second, NA=_block_of(tiles.channels), num_stages=1,
            maxnreg=tiles.registers, **constants,
        )  # fmt: skip
    else:
        first, second = in_two(tiles.channels)
        pieces_product_kernel[(across * down,)](
            *arguments, KB=tiles.piece, NA=first, NB=second, STAGES=tiles.stages, **constants
        )
    return y


def narrow_linear(x: Rows, weight: Float[Tensor, "out in"]) -> Rows:
    """X W^T for rows of few columns, for which cuBLAS is slow."""
    (rows, inward), out = x.shape, weight.shape[0]
    y = x.new_empty(rows, out)
    if y.numel():
        block = min(_block_of(out), 128)
        narrow_product_kernel[(ceil_div(rows, 32), ceil_div(out, block))](
            x, weight, y, rows, OUT=out, IN=inward, X_STRIDE=x.stride(0), R=32, OB=block,
            num_warps=4,
        )  # fmt: skip
    return y


def narrow_rows_grad(
    grad: Rows, weight: Float[Tensor, "out in"], *others: Float[Tensor, "blocks rows width"]
) -> Rows:
    """Gradient of the input of `narrow_linear`, then the sums over blocks of two `others`."""
    rows, out = grad.shape
    inward, (blocks, _, width) = weight.shape[1], others[0].shape
    joined = grad.new_empty(rows, inward + 2 * width)
    if joined.numel():
        narrow_rows_grad_kernel[(ceil_div(rows, 16),)](
            grad, weight, *others, joined, rows, OUT=out, IN=inward, WIDTH=width,
            BLOCKS=blocks, R=16, OB=_block_of(out), WB=_block_of(width), num_warps=4,
        )  # fmt: skip
    return joined


def weight_grad(
    grad: Rows, x: Rows, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Gradients of weight and bias in one pass over the rows."""
    (rows, out), inward = grad.shape, x.shape[1]
    d_weight, d_bias = torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
    if rows == 0:
        return d_weight.zero_(), None if d_bias is None else d_bias.zero_()
    block = weight_block(out, inward)
    height, width = (min(_block_of(size), block.channels) for size in (out, inward))
    across = ceil_div(out, height), ceil_div(inward, width)
    part = out * inward + (0 if bias is None else out)
    most = min(block.programs // (across[0] * across[1]), MOST_BYTES // (4 * part))
    tiles = ceil_div(ceil_div(rows, block.rows), max(LEAST_PROGRAMS, most))
    programs = ceil_div(rows, tiles * block.rows)
    parts = grad.new_empty((programs, part), dtype=torch.float32)
    is_exact = grad.is_cuda and torch.backends.cuda.matmul.fp32_precision != "tf32"
    weight_grad_kernel[(programs, *across)](
        grad, x, parts, rows, tiles, OUT=out, IN=inward, GRAD_STRIDE=grad.stride(0),
        X_STRIDE=x.stride(0), PART=part, R=block.rows, OB=height, IB=width, STAGES=block.stages,
        HAS_BIAS=bias is not None, PRECISION="ieee" if is_exact else "tf32", num_warps=1,
    )  # fmt: skip
    add_partial_sums(parts, d_weight, *([] if d_bias is None else [d_bias]))
    return d_weight, d_bias


def column_sums(rows: Rows) -> Float[Tensor, "1 channels"]:
    """Sum all rows in float32, as FEW partial sums, since PyTorch sums long columns slowly."""
    channels = rows.shape[1]
    whole = len(rows) // FEW * FEW
    few = rows[:whole].reshape(whole // FEW, FEW * channels).sum(0, dtype=torch.float32)
    return torch.cat([few.view(FEW, channels), rows[whole:].float()]).sum(0, keepdim=True)


def weight_block(out: int, inward: int) -> Block:
    """Choose the block: LARGE, unless it needs much more padding.

    Example:
        >>> weight_block(384, 96).channels, weight_block(96, 96).channels
        (64, 32)
    """

    def filled(block: Block) -> int:
        blocks = ceil_div(out, block.channels) * ceil_div(inward, block.channels)
        return int(blocks * block.channels**2)

    return LARGE if filled(LARGE) <= MOST_MORE * filled(SMALL) else SMALL


def activate_drop(
    x: Rows, activation: Activation, rate: float, site: int, seed: Int[Tensor, ""] | None,
    grad: Rows | None = None,
) -> Rows:  # fmt: skip
    """drop(activation(x)), or given its gradient, the gradient of x.

    For a ReLU, `x` may be its output, which is 0 in the same entries as its gradient.
    """
    rows, channels = x.shape
    out = torch.empty_like(x)
    if out.numel():
        height, width = 32, 64
        activate_drop_kernel[(ceil_div(rows, height), ceil_div(channels, width))](
            x, either(grad, x), either(seed, x), out, rows, site_key(site), CHANNELS=channels,
            T=height, C=width, IS_BACKWARD=grad is not None, ACTIVATION=activation,
            THRESHOLD=round(rate * 2**32), SCALE=1 / (1 - rate), num_warps=4,
        )  # fmt: skip
    return out


def center(
    x: Rows,
    target_ptr: Int[Tensor, " boundaries"],
    ptr: Int[Tensor, " graphs_and_one"],
    own: Rows | None = None,
) -> Rows:
    """Compute `nn.message_passing.center_sums` of the means in x = own + means, added to `own`.

    Without `own`, `x` is the gradient of that output; returns the gradient of the means.
    """
    out = torch.empty_like(x)
    if out.numel():
        channels = x.shape[1]
        center_kernel[(len(ptr) - 1, ceil_div(channels, CENTERED_CHANNELS))](
            x, either(own, x), target_ptr, ptr, out, CHANNELS=channels,
            OWN_STRIDE=0 if own is None else own.stride(0), HAS_OWN=own is not None, T=32,
            C=CENTERED_CHANNELS, num_warps=4,
        )  # fmt: skip
    return out


def _block_of(size: int) -> int:
    block: int = max(power_of_two(size), LEAST_BLOCK)
    return block

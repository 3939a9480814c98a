"""Linear maps of a layer on a GPU, their gradients, and what follows the first one of two."""

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
LEAST_SMALL, MOST_SMALL = 32, 384
"""Channels of a weight between which kernels of ours are faster than cuBLAS."""
MOST_OUT = 256
"""Channels up to which they are so in a forward pass."""
FEWEST_ROWS = 1024
"""Rows from which on they are."""
PROCESSORS = 132
"""Of an H200."""
MOST_HELD = 8192
"""Numbers of a matrix that a program holds; a larger one leaves too few programs under way."""
MOST_CHANNELS = 128
"""Of a program's block."""
FOUR_FIT = 128
"""Registers of a thread with which four programs of four warps fit on a processor."""
LEAST_BLOCK = 16
"""What tensor cores take at least."""
LEAST_PROGRAMS = 16
"""Programs that divide the rows among them, however large the weight is."""
CENTERED_CHANNELS = 32
"""Of a program that centres the sums of a graph."""
FEW = 128
"""Sums that `column_sums` adds up at the end."""
MOST_BYTES = 3 << 20
"""Of all partial sums, which are written, read, and in the way of the kernels beside them."""


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


def linear(
    x: Rows, weight: Float[Tensor, "out in"], bias: Tensor | None = None, *, is_relu: bool = False
) -> Rows:
    """X W^T + b in the type of the rows, cut off at 0 if `is_relu`."""
    if is_ours_faster(x, weight) and weight.shape[0] <= MOST_OUT:
        return multiply(x, weight.t(), bias=bias, is_relu=is_relu)
    weight = weight.to(x.dtype)
    y = x @ weight.t() if bias is None else torch.addmm(bias.to(x.dtype), x, weight.t())
    return y.relu_() if is_relu else y


def transposed_copy(weight: Float[Tensor, "out in"], dtype: torch.dtype) -> Float[Tensor, "out in"]:
    """Copy a weight so that its columns lie closely, as `rows_grad` reads it fastest."""
    return weight.t().to(dtype).contiguous().t()


def rows_grad(
    grad: Float[Tensor, "rows out"], weight: Float[Tensor, "out in"], more: Rows | None = None
) -> Rows:
    """Gradient of the rows that `linear` mapped, and more that they have from another use."""
    if is_ours_faster(grad, weight):
        return multiply(grad, weight, other=more)
    weight = weight.to(grad.dtype)
    return grad @ weight if more is None else torch.addmm(more, grad, weight)


def relu_grad(grad: Float[Tensor, "rows out"], weight: Float[Tensor, "out in"], made: Rows) -> Rows:
    """Gradient of the rows that a ReLU cut off, and `made`, before `linear` mapped them."""
    if is_ours_faster(grad, weight):
        return multiply(grad, weight, other=made, is_cut=True)
    return torch.ops.aten.threshold_backward(grad @ weight.to(grad.dtype), made, 0)


def is_ours_faster(rows: Rows, weight: Float[Tensor, "out in"]) -> bool:
    """Tell whether kernels of ours multiply rows and a small weight; they round to TF32."""
    if not rows.is_cuda:
        return rows.dtype == torch.float32 and rows.shape[0] > 0
    may_round = torch.backends.cuda.matmul.fp32_precision == "tf32"
    is_usual = min(weight.shape) >= LEAST_SMALL and max(weight.shape) <= MOST_SMALL
    is_single = rows.dtype == torch.float32
    return may_round and is_usual and is_single and rows.shape[0] >= FEWEST_ROWS


@dataclass(frozen=True)
class Tiles:
    """How a product is divided."""

    rows: int
    """Of a tile."""
    channels: int
    """Of the block of the product that a program writes."""
    warps: int
    programs: int = 0
    """On each processor; each holds its block of the matrix for as long as it runs. If 0, there is
    one for each tile, and takes the matrix in pieces."""
    piece: int = 0
    """Rows of the matrix in such a piece."""
    stages: int = 1
    """Pieces that are on their way at a time."""
    registers: int | None = None
    """Most that a thread may have; any number if None."""


def tiles_of(inward: int, out: int, is_transposed: bool) -> Tiles:
    """Choose tiles for a product of `inward` rows of the matrix and `out` channels.

    With four warps and 64 rows Triton takes the tensor cores' widest products, which want rows of
    the matrix that lie closely: a transposed weight is left to narrower ones.
    """
    channels = sum(in_two(ceil_div(out, ceil_div(out, MOST_CHANNELS))))
    if _block_of(inward) * _block_of(channels) <= MOST_HELD:
        return Tiles(rows=32, channels=_block_of(channels), warps=4, programs=4, registers=FOUR_FIT)
    if is_transposed:
        # A matrix of few rows is on its way as a whole.
        stages = 4 if inward <= MOST_CHANNELS else 3
        return Tiles(rows=64, channels=channels, warps=2, piece=32, stages=stages)
    return Tiles(rows=64, channels=_block_of(channels), warps=4, piece=32, stages=3)


def in_two(size: int) -> tuple[int, int]:
    """Return two powers of two that together hold so many, or one and 0 if that is as good.

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
    """X M + b + other, or 0 where `other` is not above 0 (`is_cut`), then a ReLU if one is wanted.

    Blocks of channels of the same rows follow one another: the cache still has the rows.
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
    """X W^T for rows of few columns, for which cuBLAS takes kernels that are made for many."""
    (rows, inward), out = x.shape, weight.shape[0]
    y = x.new_empty(rows, out)
    if y.numel():
        block = min(_block_of(out), 128)
        narrow_product_kernel[(ceil_div(rows, 32), ceil_div(out, block))](
            *(x, weight, y, rows), OUT=out, IN=inward, X_STRIDE=x.stride(0), R=32, OB=block,
            num_warps=4,
        )  # fmt: skip
    return y


def narrow_rows_grad(
    grad: Rows, weight: Float[Tensor, "out in"], *others: Float[Tensor, "blocks rows width"]
) -> Rows:
    """Gradient of the rows that `narrow_linear` mapped, and beside it two others, summed."""
    rows, out = grad.shape
    inward, (blocks, _, width) = weight.shape[1], others[0].shape
    made = grad.new_empty(rows, inward + 2 * width)
    if made.numel():
        narrow_rows_grad_kernel[(ceil_div(rows, 16),)](
            *(grad, weight, *others, made, rows), OUT=out, IN=inward, WIDTH=width,
            BLOCKS=blocks, R=16, OB=_block_of(out), WB=_block_of(width), num_warps=4,
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
    across = ceil_div(out, height), ceil_div(inward, width)
    part = out * inward + (0 if bias is None else out)
    most = min(block.programs // (across[0] * across[1]), MOST_BYTES // (4 * part))
    tiles = ceil_div(ceil_div(rows, block.rows), max(LEAST_PROGRAMS, most))
    programs = ceil_div(rows, tiles * block.rows)
    parts = grad.new_empty((programs, part), dtype=torch.float32)
    is_exact = grad.is_cuda and torch.backends.cuda.matmul.fp32_precision != "tf32"
    weight_grad_kernel[(programs, *across)](
        *(grad, x, parts, rows, tiles), OUT=out, IN=inward, GRAD_STRIDE=grad.stride(0),
        X_STRIDE=x.stride(0), PART=part, R=block.rows, OB=height, IB=width, STAGES=block.stages,
        HAS_BIAS=bias is not None, PRECISION="ieee" if is_exact else "tf32", num_warps=1,
    )  # fmt: skip
    add_partial_sums(parts, d_weight, *([] if d_bias is None else [d_bias]))
    return d_weight, d_bias


def column_sums(rows: Rows) -> Float[Tensor, "1 channels"]:
    """Add up all rows in float32, some side by side, since PyTorch adds long columns slowly."""
    channels = rows.shape[1]
    whole = len(rows) // FEW * FEW
    few = rows[:whole].reshape(whole // FEW, FEW * channels).sum(0, dtype=torch.float32)
    return torch.cat([few.view(FEW, channels), rows[whole:].float()]).sum(0, keepdim=True)


def weight_block(out: int, inward: int) -> Block:
    """Choose blocks; large ones must not be much emptier.

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
    """drop(activation(x)), or given the gradient of that, the one of x.

    For a ReLU, `x` may be what came out: it is 0 where the input was cut off.
    """
    rows, channels = x.shape
    out = torch.empty_like(x)
    if out.numel():
        height, width = 32, 64
        activate_drop_kernel[(ceil_div(rows, height), ceil_div(channels, width))](
            *(x, x if grad is None else grad, x if seed is None else seed, out, rows),
            site_key(site), CHANNELS=channels, T=height, C=width, IS_BACKWARD=grad is not None,
            ACTIVATION=activation, THRESHOLD=round(rate * 2**32), SCALE=1 / (1 - rate),
            num_warps=4,
        )  # fmt: skip
    return out


def center(
    x: Rows,
    target_ptr: Int[Tensor, " boundaries"],
    ptr: Int[Tensor, " graphs_and_one"],
    own: Rows | None = None,
) -> Rows:
    """Add to `own` what nodes receive, centred by degree, as `nn.message_passing.center_sums` does.

    Without `own`, `x` is the gradient of what that returned, and the one of the means comes back.
    """
    out = torch.empty_like(x)
    if out.numel():
        channels = x.shape[1]
        center_kernel[(len(ptr) - 1, ceil_div(channels, CENTERED_CHANNELS))](
            *(x, either(own, x), target_ptr, ptr, out), CHANNELS=channels,
            OWN_STRIDE=0 if own is None else own.stride(0), HAS_OWN=own is not None, T=32,
            C=CENTERED_CHANNELS, num_warps=4,
        )  # fmt: skip
    return out


def _block_of(size: int) -> int:
    block: int = max(power_of_two(size), LEAST_BLOCK)
    return block

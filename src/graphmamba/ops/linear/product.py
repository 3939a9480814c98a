"""The products of rows and a small weight on a GPU: which kernel runs, on what tiles."""

from dataclasses import dataclass
from typing import Any

import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.kernel_sizes import LEAST_BLOCK, block_of
from graphmamba.ops.linear.product_kernels import held_product_kernel, pieces_product_kernel
from graphmamba.ops.operators import either

PROCESSORS = 132
"""Of an H200."""
MOST_HELD = 8192
"""Numbers of a matrix that a program holds; a larger one leaves too few programs under way."""
MOST_CHANNELS = 128
"""Of a program's block."""
FOUR_FIT = 128
"""Registers of a thread with which four programs of four warps fit on a processor."""


@dataclass(frozen=True)
class Tiles:
    """How a product is shared out."""

    rows: int
    """Of a tile."""
    channels: int
    """Of the block of the product that a program writes."""
    warps: int
    programs: int = 0
    """On each processor; each holds its block of the matrix for as long as it runs. If 0, there is
    one for each tile, and takes the matrix in pieces."""
    piece: int = 0
    """Lines of such a piece."""
    stages: int = 1
    """Pieces that are on their way at a time."""
    registers: int | None = None
    """Most that a thread may have; any number if None."""


def tiles_of(inward: int, out: int, is_turned: bool) -> Tiles:
    """Choose tiles for a product of `inward` lines and `out` channels.

    With four warps and 64 rows Triton takes the tensor cores' widest products, which want lines
    that lie closely: a weight that is turned round is left to narrower ones.
    """
    channels = sum(in_two(triton.cdiv(out, triton.cdiv(out, MOST_CHANNELS))))
    if block_of(inward) * block_of(channels) <= MOST_HELD:
        return Tiles(rows=32, channels=block_of(channels), warps=4, programs=4, registers=FOUR_FIT)
    if is_turned:
        # A matrix of few lines is on its way as a whole.
        stages = 4 if inward <= MOST_CHANNELS else 3
        return Tiles(rows=64, channels=channels, warps=2, piece=32, stages=stages)
    return Tiles(rows=64, channels=block_of(channels), warps=4, piece=32, stages=3)


def in_two(size: int) -> tuple[int, int]:
    """Return two powers of two that together hold so many, or one and 0 if that is as good."""
    whole = block_of(size)
    rest = block_of(max(size - whole // 2, 1))
    return (whole, 0) if whole // 2 + rest >= whole else (whole // 2, rest)


def halves_of(inward: int) -> tuple[int, int]:
    """Return the lines of the two pieces in which a matrix is held."""
    first, second = in_two(inward)
    half = max(first // 2, LEAST_BLOCK)
    return (first, second) if second else (half, half)


def map_rows(
    x: Float[Tensor, "rows in"],
    weight: Float[Tensor, "out in"],
    bias: Float[Tensor, " out"] | None,
    is_relu: bool = False,
    tiles: Tiles | None = None,
) -> Float[Tensor, "rows out"]:
    """X W^T + b with TF32, then a ReLU if one is wanted."""
    return _multiply(x, weight.T, bias=bias, is_relu=is_relu, tiles=tiles)


def rows_grad(
    grad: Float[Tensor, "rows out"],
    weight: Float[Tensor, "out in"],
    more: Float[Tensor, "rows in"] | None = None,
    tiles: Tiles | None = None,
) -> Float[Tensor, "rows in"]:
    """Grad W + more with TF32."""
    return _multiply(grad, weight, other=more, tiles=tiles)


def relu_grad(
    grad: Float[Tensor, "rows out"],
    weight: Float[Tensor, "out in"],
    kept: Float[Tensor, "rows in"],
    tiles: Tiles | None = None,
) -> Float[Tensor, "rows in"]:
    """Grad W with TF32, then 0 where the outputs of a ReLU, which were kept, are 0."""
    return _multiply(grad, weight, other=kept, is_cut=True, tiles=tiles)


def _multiply(
    x: Float[Tensor, "rows k"],
    matrix: Float[Tensor, "k n"],
    *,
    bias: Float[Tensor, " n"] | None = None,
    other: Float[Tensor, "rows n"] | None = None,
    is_cut: bool = False,
    is_relu: bool = False,
    tiles: Tiles | None = None,
) -> Float[Tensor, "rows n"]:
    inward, out = matrix.shape
    y = x.new_empty(x.shape[0], out)
    if not y.numel():
        return y
    tiles = tiles or tiles_of(inward, out, is_turned=matrix.stride(0) != 1)
    across, down, constants = share_out(x, matrix, other, tiles)
    kernel = held_product_kernel if tiles.programs else pieces_product_kernel
    kernel[(across * down,)](
        *(x, matrix, either(bias, x), either(other, x), y, x.shape[0]),
        **constants,
        HAS_BIAS=bias is not None,
        IS_CUT=is_cut,
        IS_RELU=is_relu,
    )
    return y


def share_out(
    x: Float[Tensor, "rows k"],
    matrix: Float[Tensor, "k n"],
    other: Float[Tensor, "rows n"] | None,
    tiles: Tiles,
) -> tuple[int, int, dict[str, Any]]:
    """Return the programs across and down a product, and what they are compiled for.

    Those that hold their block of the matrix and those that take it in pieces are other kernels.
    """
    (rows, inward), out = x.shape, matrix.shape[1]
    across, down = triton.cdiv(out, tiles.channels), triton.cdiv(rows, tiles.rows)
    constants = {
        "K": inward,
        "N": out,
        "AT_K": matrix.stride(0),
        "AT_N": matrix.stride(1),
        "X_STRIDE": x.stride(0),
        "OTHER_STRIDE": 0 if other is None else other.stride(0),
        "R": tiles.rows,
        "HAS_OTHER": other is not None,
        "num_warps": tiles.warps,
    }
    if tiles.programs:
        down = min(down, max(1, PROCESSORS * tiles.programs // across))
        first, second = halves_of(inward)
        width = block_of(tiles.channels)
        held = {"KA": first, "KB": second, "NA": width, "num_stages": 1, "maxnreg": tiles.registers}
        return across, down, constants | held
    first, second = in_two(tiles.channels)
    pieces = {"KB": tiles.piece, "NA": first, "NB": second, "STAGES": tiles.stages}
    return across, down, constants | pieces

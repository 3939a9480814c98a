"""The gradient of rows that a norm made, with the sums that the norm wants of it, on a GPU."""

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.batch_norm.drop import site_key
from graphmamba.ops.line_sums import add_lines
from graphmamba.ops.linear.product import Tiles, share_out, tiles_of
from graphmamba.ops.linear.summed_kernels import held_summed_kernel, pieces_summed_kernel
from graphmamba.ops.operators import either

HELD_ROWS = 16
"""Of a tile of programs that hold the matrix: sums want registers as well, and four are to fit."""

Rows = Float[Tensor, "rows in"]
Channels = Float[Tensor, " in"]


def rows_grad_summed(
    grad: Float[Tensor, "rows out"],
    weight: Float[Tensor, "out in"],
    more: Rows | None,
    kept: Float[Tensor, "2 in"],
    normed: Rows,
    norm_weight: Channels,
    norm_bias: Channels,
    seed: Int[Tensor, ""] | None,
    count: Int[Tensor, ""] | None,
    activation: str,
    rate: float,
    site: int,
    tiles: Tiles | None = None,
) -> tuple[Rows, Channels, Channels]:
    """Grad W + more with TF32, and the gradients of weight and bias of the norm before it.

    The rows were made by that norm, its activation and a dropout, of `normed`; `kept` has its mean
    and 1 / deviation. The sums are those of `batch_norm.fused.backward_sums`.
    """
    inward, out = weight.shape
    y = grad.new_empty(grad.shape[0], out)
    d_weight, d_bias = (kept.new_empty(norm_weight.shape) for _ in range(2))
    if not y.numel():
        return y, d_weight.zero_(), d_bias.zero_()
    tiles = tiles or summed_tiles_of(inward, out, is_turned=weight.stride(0) != 1)
    across, down, constants = share_out(grad, weight, more, tiles)
    parts = kept.new_empty(down, 2 * out)
    kernel = held_summed_kernel if tiles.programs else pieces_summed_kernel
    kernel[(across * down,)](
        *(grad, weight, either(more, grad), y, normed, kept, norm_weight, norm_bias),
        *(either(seed, grad), either(count, grad), parts, grad.shape[0], site_key(site)),
        **constants,
        NORMED_STRIDE=normed.stride(0),
        HAS_COUNT=count is not None,
        ACTIVATION=activation,
        THRESHOLD=round(rate * 2**32),
        SCALE=1 / (1 - rate),
    )
    add_lines(parts, d_weight, d_bias)
    return y, d_weight, d_bias


def summed_tiles_of(inward: int, out: int, is_turned: bool) -> Tiles:
    """Choose tiles: those of the product alone, of fewer rows where programs hold the matrix."""
    tiles = tiles_of(inward, out, is_turned)
    return replace(tiles, rows=HELD_ROWS) if tiles.programs else tiles

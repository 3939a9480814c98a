"""Gradients of the norm of the edges on a GPU: which kernels run."""

from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.batch_norm import fused as norm
from graphmamba.line_sums import add_lines

Rows = Float[Tensor, "edges channels"]
Channels = Float[Tensor, " channels"]


def norm_sums(
    grad: Rows,
    kept: Float[Tensor, "2 channels"],
    e_hat: Rows,
    weight: Channels,
    bias: Channels,
    seed: Int[Tensor, ""] | None,
    count: Int[Tensor, ""] | None,
    activation: str,
    rate: float,
    site: int,
) -> tuple[Channels, Channels]:
    """Gradients of the norm's weight and bias, which that of e_hat hangs on."""
    d_weight, d_bias = (kept.new_empty(weight.shape) for _ in range(2))
    if e_hat.numel() == 0:
        return d_weight.zero_(), d_bias.zero_()
    parts = norm.backward_sums(
        *(grad, kept, e_hat, weight, bias, None, None, seed, count),
        *(activation, [0.0, rate], [0, site]),
    )
    add_lines(parts.flatten(1), d_weight, d_bias)
    return d_weight, d_bias

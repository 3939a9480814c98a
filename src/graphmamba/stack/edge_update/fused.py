"""Gradients of the gated sum and the norm of its edges on a GPU: which kernels run."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.batch_norm import fused as norm
from graphmamba.line_sums import add_lines
from graphmamba.stack.gated_sum import fused as gated
from graphmamba.stack.gated_sum.slopes import Slopes

Rows = Float[Tensor, "edges channels"]
Channels = Float[Tensor, " channels"]


class Layout(NamedTuple):
    """The tensors of an `EdgeLayout`, as operators take them."""

    edge_index: Int[Tensor, "2 edges"]
    target_ptr: Int[Tensor, " boundaries"]
    target_order: Int[Tensor, " edges"] | None
    source_ptr: Int[Tensor, " boundaries"]
    source_order: Int[Tensor, " edges"]


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


def backward(
    d_x_hat: Float[Tensor, "nodes channels"],
    grad: Rows,
    e_hat: Rows,
    kept: Float[Tensor, "2 nodes channels"],
    sent: Float[Tensor, "nodes channels"],
    scale: Float[Tensor, " edges"] | None,
    layout: Layout,
    slopes: Slopes,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of nodes, edges and scale, of shape (0,) if that is None."""
    return gated.backward(d_x_hat, grad, e_hat, kept, sent, scale, *layout, slopes=slopes)

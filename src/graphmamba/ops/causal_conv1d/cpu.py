"""The causal convolution on the CPU, compiled by Numba: sequences end to end, in any order."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.causal_conv1d.cpu_kernels import GROUP, conv_backward, conv_forward
from graphmamba.ops.cpu_arrays import (
    LANES,
    add_groups,
    as_parameter,
    as_rows,
    fill_up,
    real_type,
    share_out,
    sum_by_row,
)


def forward(
    x: Float[Tensor, "rows inner"],
    weight: Float[Tensor, "inner width"],
    bias: Float[Tensor, " inner"] | None,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    permutation: bool,  # noqa: ARG001 - it matters to gradients alone
    activation: bool,
    reverse: bool,
) -> tuple[Float[Tensor, "steps inner"], Float[Tensor, " 0"]]:
    """The output, in step order; nothing is kept, since `backward` computes again what it wants."""
    inputs = _inputs(x, weight, bias, cu_seqlens, order, reverse)
    steps = len(inputs.position)
    out = torch.empty((steps, x.shape[1]), dtype=real_type(x))
    convolve, groups = conv_forward(inputs.weight.dtype), -(-steps // GROUP)
    share_out(convolve, groups, *inputs, activation, reverse, out.numpy(), np.arange(steps))
    return out.to(x.dtype), weight.new_empty(0)


def backward(
    grad: Float[Tensor, "steps inner"],
    kept: Float[Tensor, " 0"],  # noqa: ARG001
    x: Float[Tensor, "rows inner"],
    weight: Float[Tensor, "inner width"],
    bias: Float[Tensor, " inner"] | None,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    permutation: bool,
    activation: bool,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias; of shape (0,) for a bias that is None."""
    inputs = _inputs(x, weight, bias, cu_seqlens, order, reverse)
    (steps, inner), real, g = grad.shape, real_type(x), as_rows(grad, real_type(x))
    dtype, groups = inputs.weight.dtype, -(-steps // GROUP)

    d_value = torch.empty((steps, inner), dtype=real)  # before the activation
    d_weight = np.zeros((groups, 2, *inputs.weight.shape), dtype)
    d_bias = np.zeros((groups, 2, 1, *inputs.bias.shape), dtype)
    written = d_value.numpy(), d_weight, d_bias
    share_out(conv_backward(dtype), groups, *inputs, activation, reverse, g, *written)

    # Each row gets back what it gave, by the same taps, from later steps: the convolution of the
    # gradient in the other direction.
    one_by_one = np.arange(steps)
    taps, no_bias = inputs.weight, np.zeros_like(inputs.bias)
    ahead = _positions(cu_seqlens, not reverse)
    slots = order.long().numpy() if permutation and order is not None else one_by_one
    d_steps = torch.empty((steps, inner), dtype=real)
    back = (written[0], one_by_one, ahead, taps, no_bias, False, not reverse)
    share_out(conv_forward(dtype), groups, *back, d_steps.numpy(), slots)
    d_x = sum_by_row(d_steps, order, len(x), is_permutation=permutation)
    d_taps = add_groups(d_weight[:, 0].swapaxes(1, 2), weight)
    return d_x.to(x.dtype), d_taps, add_groups(d_bias[:, 0, 0], bias)


class _Inputs(NamedTuple):
    """What both kernels read, in the order in which they take it."""

    x: Float[np.ndarray, "rows inner"]
    rows: Int[np.ndarray, " steps"]
    position: Int[np.ndarray, " steps"]
    weight: Float[np.ndarray, "width filled"]
    bias: Float[np.ndarray, " filled"]


def _inputs(
    x: Float[Tensor, "rows inner"],
    weight: Float[Tensor, "inner width"],
    bias: Float[Tensor, " inner"] | None,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    reverse: bool,
) -> _Inputs:
    real, filled = real_type(x), fill_up(x.shape[1], LANES)
    rows = torch.arange(len(x)) if order is None else order.long() % max(len(x), 1)
    return _Inputs(
        x=as_rows(x, real),
        rows=rows.numpy(),
        position=_positions(cu_seqlens, reverse),
        weight=as_parameter(weight.t(), (weight.shape[1], filled), real),
        bias=as_parameter(bias, (filled,), real),
    )


def _positions(cu_seqlens: Int[Tensor, " boundaries"], reverse: bool) -> Int[np.ndarray, " steps"]:
    """Steps of its sequence before each step, in the direction of the convolution."""
    bounds = cu_seqlens.long().numpy()
    steps, lengths = np.arange(bounds[-1]), np.diff(bounds)
    if reverse:
        return np.repeat(bounds[1:], lengths) - 1 - steps
    return steps - np.repeat(bounds[:-1], lengths)

"""The causal convolution on the CPU, in Numba."""

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
    permutation: bool,  # noqa: ARG001
    activation: bool,
    reverse: bool,
) -> tuple[Float[Tensor, "steps inner"], Float[Tensor, " 0"]]:
    """Return the output, and an empty tensor: `backward` recomputes all that it needs."""
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
    """Return the gradients of x, weight and bias; shape (0,) for None."""
    inputs = _inputs(x, weight, bias, cu_seqlens, order, reverse)
    (steps, inner), real, g = grad.shape, real_type(x), as_rows(grad, real_type(x))
    dtype, groups = inputs.weight.dtype, -(-steps // GROUP)

    d_value = torch.empty((steps, inner), dtype=real)  # before the activation
    d_weight = np.zeros((groups, 2, *inputs.weight.shape), dtype)
    d_bias = np.zeros((groups, 2, 1, *inputs.bias.shape), dtype)
    written = d_value.numpy(), d_weight, d_bias
    share_out(conv_backward(dtype), groups, *inputs, activation, reverse, g, *written)

    # The gradient of the steps is the convolution of d_value in the other direction.
    identity = np.arange(steps)
    positions, no_bias = _positions(cu_seqlens, not reverse), np.zeros_like(inputs.bias)
    slots = order.long().numpy() if permutation and order is not None else identity
    d_steps = torch.empty((steps, inner), dtype=real)
    arrays = written[0], identity, positions, inputs.weight, no_bias, False, not reverse
    share_out(conv_forward(dtype), groups, *arrays, d_steps.numpy(), slots)
    d_x = sum_by_row(d_steps, order, len(x), is_permutation=permutation)
    d_taps = add_groups(d_weight[:, 0].swapaxes(1, 2), weight)
    return d_x.to(x.dtype), d_taps, add_groups(d_bias[:, 0, 0], bias)


class _Inputs(NamedTuple):
    """Inputs of both kernels, in the order of their arguments."""

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
    """Index of each step in its sequence, in the direction of the convolution."""
    bounds = cu_seqlens.long().numpy()
    steps, lengths = np.arange(bounds[-1]), np.diff(bounds)
    if reverse:
        return np.repeat(bounds[1:], lengths) - 1 - steps
    return steps - np.repeat(bounds[:-1], lengths)

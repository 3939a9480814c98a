"""Launches the Triton kernels of the causal convolution."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.causal_conv1d.triton_kernels import (
    causal_conv1d_bwd_kernel,
    causal_conv1d_fwd_kernel,
)
from graphmamba.ops.triton_launch import add_partial_sums, ceil_div, sum_rows

BLOCK_CHANNELS = 32
BLOCK_STEPS = 8
WARPS = 1  # small tiles of eight entries per thread were the fastest
FEW_TAPS = 4  # with more, the backward pass has registers for half a tile
MOST_PROGRAMS = 8192  # of the backward pass; each writes one row of partial sums


@dataclass(frozen=True)
class _Plan:
    """Arguments that both kernels share."""

    steps: int
    blocks: int  # tiles along the channels
    numbers: tuple[int, ...]  # steps, rows, boundaries, iterations of a binary search among these
    constants: dict[str, Any]


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
    plan = _plan(x, weight, bias, cu_seqlens, order, activation, reverse)
    y = x.new_empty((plan.steps, x.shape[1]))
    if y.numel() > 0:
        causal_conv1d_fwd_kernel[(ceil_div(plan.steps, BLOCK_STEPS), plan.blocks)](
            x, weight.contiguous(), x if bias is None else bias, cu_seqlens,
            cu_seqlens if order is None else order, y, *plan.numbers, T=BLOCK_STEPS,
            **plan.constants,
        )  # fmt: skip
    return y, weight.new_empty(0)


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
    dx_out: Float[Tensor, "rows inner"] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias; shape (0,) for None.

    `dx_out` is a buffer for the gradient of x, whose rows may be strided.
    """
    plan = _plan(x, weight, bias, cu_seqlens, order, activation, reverse)
    (rows, inner), width = x.shape, weight.shape[1]
    block = BLOCK_STEPS if width <= FEW_TAPS else BLOCK_STEPS // 2
    tiles = ceil_div(ceil_div(plan.steps, block) * plan.blocks, MOST_PROGRAMS)
    programs = ceil_div(plan.steps, block * max(tiles, 1))

    # Gradients of several steps that read one row are summed in float32.
    is_summed = order is not None and not (permutation and rows == plan.steps)
    if dx_out is not None and not is_summed:
        dx = dx_out
    else:
        dtype = torch.float32 if is_summed else x.dtype
        dx = x.new_empty((plan.steps, inner), dtype=dtype)
    parts = x.new_empty((programs, (width + 1) * inner), dtype=torch.float32)
    has_steps = dx.numel() > 0
    if has_steps:
        causal_conv1d_bwd_kernel[(programs, plan.blocks)](
            grad, x, weight.contiguous(), x if bias is None else bias, cu_seqlens,
            cu_seqlens if order is None else order, dx, parts, *plan.numbers, tiles, T=block,
            GRAD_STRIDE=grad.stride(0), DX_STRIDE=dx.stride(0),
            TO_SLOTS=permutation and order is not None, **plan.constants,
        )  # fmt: skip
    if order is not None and is_summed:
        if plan.steps > 0:
            dx = sum_rows(dx, order, rows, is_permutation=permutation).to(x.dtype)
        else:
            dx = torch.zeros_like(x, memory_format=torch.contiguous_format)
        dx = dx if dx_out is None else dx_out.copy_(dx)
    d_weight, d_bias = parts.new_empty(weight.shape), parts.new_empty(inner)
    if has_steps:
        add_partial_sums(parts, d_weight, d_bias)
    else:
        d_weight.zero_()
        d_bias.zero_()
    d_weight = d_weight.to(weight.dtype)
    return dx, d_weight, x.new_empty(0) if bias is None else d_bias.to(bias.dtype)


def _plan(
    x: Float[Tensor, "rows inner"],
    weight: Float[Tensor, "inner width"],
    bias: Float[Tensor, " inner"] | None,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    activation: bool,
    reverse: bool,
) -> _Plan:
    rows, inner = x.shape
    steps, boundaries = rows if order is None else order.shape[0], cu_seqlens.shape[0]
    constants = {
        "INNER": inner, "WIDTH": weight.shape[1], "X_STRIDE": x.stride(0), "C": BLOCK_CHANNELS,
        "HAS_BIAS": bias is not None, "HAS_ORDER": order is not None,
        "HAS_SAMPLES": order is not None and rows != steps, "ACTIVATION": activation,
        "REVERSE": reverse, "num_warps": WARPS,
    }  # fmt: skip
    numbers = steps, rows, boundaries, boundaries.bit_length()
    return _Plan(steps, ceil_div(inner, BLOCK_CHANNELS), numbers, constants)

"""Two linear maps and the ReLU between them, whose gradients are found together on a GPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.fusing import FusedBackend, is_fused_single
from graphmamba.ops.linear import linear
from graphmamba.ops.linear.operators import (
    MATRIX,
    NARROW,
    as_rows,
    grad_before_relu,
    grad_of_rows,
    mapped,
    parameter_grads,
)
from graphmamba.ops.linear.relu import linear_relu_through, mapped_relu

PARAMETERS = 4
"""Weight and bias of each map."""


def feed_forward(
    x: Float[Tensor, "rows in"],
    weight: Float[Tensor, "wide in"],
    bias: Float[Tensor, " wide"],
    second_weight: Float[Tensor, "out wide"],
    second_bias: Float[Tensor, " out"],
    *,
    backend: FusedBackend = "auto",
) -> tuple[Float[Tensor, "rows out"], Float[Tensor, "rows in"]]:
    r"""Map each row, apply a ReLU, and map it again.

    .. math:: y = W_2 \max(W_1 x + b_1, 0) + b_2

    PyTorch cuts off the gradient of the ReLU in a pass of its own over the wide rows. The fused
    form does so where the product makes that gradient, and takes all others as
    `linear_relu_through` and `linear` do. It is for rows of more than a few columns.

    Args:
        x: Rows.
        weight: W_1.
        bias: b_1.
        second_weight: W_2.
        second_bias: b_2.
        backend: As in `linear`.

    Returns:
        The mapped rows, and the rows themselves for another use, as `linear_through` hands them on.
    """
    is_kernel = is_fused_single(backend, x, weight, second_weight)
    if is_kernel and x.dim() == MATRIX and min(weight.shape) > NARROW:
        return FeedForward.apply(x, weight, bias, second_weight, second_bias)  # type: ignore[no-untyped-call]
    wide, x = linear_relu_through(x, weight, bias, backend=backend)
    return linear(wide, second_weight, second_bias, backend=backend), x


class FeedForward(torch.autograd.Function):
    """Both maps, which keep the rows and what the ReLU gave; and the rows themselves."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        second_weight: Tensor,
        second_bias: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Map, cut off and map again."""
        ctx.set_materialize_grads(False)
        wide = mapped_relu(x, weight, bias)
        ctx.save_for_backward(x, weight, wide, second_weight)
        return mapped(wide, second_weight, second_bias), x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor | None, more: Tensor | None) -> tuple[Tensor | None, ...]:
        """Go back through the second map, the ReLU and the first map."""
        if grad is None:
            return more, *[None] * PARAMETERS
        x, weight, wide, second_weight = ctx.saved_tensors
        needs_x, *needs = ctx.needs_input_grad
        rows = as_rows(grad)
        later = parameter_grads(rows, wide, *needs[2:])
        if not (needs_x or any(needs[:2])):
            return None, None, None, *later
        d_wide = grad_before_relu(rows, second_weight, wide)
        found = parameter_grads(d_wide, as_rows(x), *needs[:2])
        return grad_of_rows(d_wide, weight, more) if needs_x else None, *found, *later

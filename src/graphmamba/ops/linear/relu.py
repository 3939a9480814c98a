"""A linear map and the ReLU behind it, by one kernel on a GPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphmamba.ops.fusing import FusedBackend, is_fused_single
from graphmamba.ops.linear import linear
from graphmamba.ops.linear.operators import (
    MATRIX,
    NARROW,
    as_rows,
    grad_of_rows,
    is_map_ours,
    parameter_grads,
)


def linear_relu(
    x: Float[Tensor, "rows in"],
    weight: Float[Tensor, "out in"],
    bias: Float[Tensor, " out"],
    *,
    backend: FusedBackend = "auto",
) -> Float[Tensor, "rows out"]:
    r"""Map each row, then apply a ReLU.

    .. math:: y = \max(x W^T + b, 0)

    The fused form hands bias and ReLU to the product, which spares a pass over its result, and
    takes its gradients as `linear` does. It is for rows of more than a few columns.

    Args:
        x: Rows.
        weight: W.
        bias: b.
        backend: As in `linear`.
    """
    return linear_relu_through(x, weight, bias, backend=backend)[0]


def linear_relu_through(
    x: Float[Tensor, "rows in"],
    weight: Float[Tensor, "out in"],
    bias: Float[Tensor, " out"],
    *,
    backend: FusedBackend = "auto",
) -> tuple[Float[Tensor, "rows out"], Float[Tensor, "rows in"]]:
    """The same, and the rows themselves for another use, as `linear_through` hands them on."""
    if is_fused_single(backend, x, weight) and x.dim() == MATRIX and x.shape[-1] > NARROW:
        return LinearRelu.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return functional.relu(linear(x, weight, bias, backend=backend)), x


class LinearRelu(torch.autograd.Function):
    """The map and its ReLU, which keeps what comes out and not what is in between; and the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply, add and cut off."""
        ctx.set_materialize_grads(False)
        y = mapped_relu(x, weight, bias)
        ctx.save_for_backward(x, weight, y)
        return y, x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, more: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Let through what the ReLU let through, then go on as the map alone does."""
        if grad is None:
            return more, None, None
        x, weight, y = ctx.saved_tensors
        needs_x, *needs = ctx.needs_input_grad
        rows = as_rows(torch.ops.aten.threshold_backward(grad, y, 0))
        found = parameter_grads(rows, as_rows(x), *needs)
        return grad_of_rows(rows, weight, more) if needs_x else None, *found


def mapped_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Multiply, add and cut off, by one kernel."""
    if not is_map_ours(x, weight):
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=False)
    y: Tensor = torch.ops.graphmamba.map_rows_fused(as_rows(x), weight, bias, True)
    return y

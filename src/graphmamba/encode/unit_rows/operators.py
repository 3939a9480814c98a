"""Scaling of rows as operators that PyTorch can trace, and its gradient."""

from typing import Any

import torch
from torch import Tensor

from graphmamba.operators import add_operator, as_dense

_FORWARD = "unit_rows_fused(Tensor x, bool has_relu) -> Tensor"
_BACKWARD = "unit_rows_fused_backward(Tensor grad, Tensor x, bool has_relu) -> Tensor"


def _forward(x: Tensor, has_relu: bool) -> Tensor:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.encode.unit_rows import fused

    with torch.cuda.device_of(x):
        return fused.forward(*as_dense((x, has_relu)))


def _backward(grad: Tensor, x: Tensor, has_relu: bool) -> Tensor:
    from graphmamba.encode.unit_rows import fused

    with torch.cuda.device_of(x):
        return fused.backward(*as_dense((grad, x, has_relu)))


def _fake_forward(x: Tensor, _: bool) -> Tensor:
    return x.new_empty(x.shape)


def _fake_backward(_grad: Tensor, x: Tensor, _: bool) -> Tensor:
    return x.new_empty(x.shape)


_FORWARD_OPERATOR = add_operator(_FORWARD, _forward, _fake_forward)
_BACKWARD_OPERATOR = add_operator(_BACKWARD, _backward, _fake_backward)


class UnitRows(torch.autograd.Function):
    """The scaled rows; only those before are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, has_relu: bool) -> Tensor:
        """Run the kernel."""
        ctx.save_for_backward(x)
        ctx.has_relu = has_relu
        return _FORWARD_OPERATOR(x, has_relu)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Run that of the backward pass."""
        return _BACKWARD_OPERATOR(grad, *ctx.saved_tensors, ctx.has_relu), None

"""The fused gradients as operators that PyTorch can trace."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphmamba.operators import add_operator, as_dense

MATRIX = 2
"""Dimensions of rows."""
NARROW = 16
"""Columns up to which tensor cores would be idle."""
MOST_PRODUCT = 128
"""Channels of a weight that one program can hold, to add its product to other rows."""
_BACKWARD = (
    "linear_fused_backward(Tensor grad, Tensor x, Tensor weight, bool has_bias, bool needs_dx) "
    "-> (Tensor, Tensor, Tensor)"
)
_NARROW = "narrow_linear_fused(Tensor x, Tensor weight, Tensor? bias) -> Tensor"
_ADD = "add_product_fused(Tensor more, Tensor grad, Tensor weight) -> Tensor"
_SUMS = "column_sums_fused(Tensor grad) -> Tensor"


def _backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.encode.linear import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.backward(*arguments)


def _narrow(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from graphmamba.encode.linear import fused

    with torch.cuda.device_of(x):
        return fused.narrow(*as_dense((x, weight, bias)))


def _add_product(more: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    from graphmamba.encode.linear import fused

    with torch.cuda.device_of(grad):
        return fused.add_product(more, grad, weight)


def _column_sums(grad: Tensor) -> Tensor:
    from graphmamba.encode.linear import fused

    with torch.cuda.device_of(grad):
        return fused.column_sums(grad)


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, has_bias: bool, needs_dx: bool
) -> tuple[Tensor, Tensor, Tensor]:
    d_bias = grad.new_empty(grad.shape[1] if has_bias else 0)
    return x.new_empty(x.shape if needs_dx else (0,)), torch.empty_like(weight), d_bias


def _fake_narrow(x: Tensor, weight: Tensor, _: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _fake_add(more: Tensor, _: Tensor, __: Tensor) -> Tensor:
    return more.new_empty(more.shape)


def _fake_sums(grad: Tensor) -> Tensor:
    return grad.new_empty(grad.shape[1])


for _schema, _compute, _fake in (
    (_NARROW, _narrow, _fake_narrow),
    (_BACKWARD, _backward, _fake_backward),
    (_ADD, _add_product, _fake_add),
    (_SUMS, _column_sums, _fake_sums),
):
    add_operator(_schema, _compute, _fake)


class FusedLinear(torch.autograd.Function):
    """`torch.nn.functional.linear` with gradients from the kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Let PyTorch multiply, but where rows are short."""
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        if x.shape[-1] > NARROW:
            return functional.linear(x, weight, bias)
        y = torch.ops.graphmamba.narrow_linear_fused(_rows(x), weight.contiguous(), bias)
        return y.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Find all gradients in one pass, or that of the bias alone where nothing is rounded."""
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows, inputs = _rows(grad), _rows(x)
        dx = d_weight = d_bias = None
        if needs_weight and may_round(grad):
            dx, d_weight, d_bias = torch.ops.graphmamba.linear_fused_backward(
                rows, inputs, weight.contiguous(), ctx.has_bias, needs_x
            )
        else:
            d_bias = torch.ops.graphmamba.column_sums_fused(rows) if needs_bias else None
            d_weight = rows.T @ inputs if needs_weight else None
            dx = rows @ weight if needs_x else None
        return (
            dx.view(x.shape) if dx is not None and needs_x else None,
            d_weight,
            d_bias if needs_bias else None,
        )


class ThroughLinear(torch.autograd.Function):
    """The same, and the rows themselves, whose other gradient is added where this one is found."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Let PyTorch multiply."""
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        return functional.linear(x, weight, bias), x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, more: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Find the gradients of weight and bias, then that of the rows."""
        x, weight = ctx.saved_tensors
        if grad is None:
            return more, None, None
        grad, needs = _rows(grad), ctx.needs_input_grad
        _, d_weight, d_bias = torch.ops.graphmamba.linear_fused_backward(
            grad, _rows(x), weight.contiguous(), needs[2], False
        )
        dx = None
        if needs[0] and more is None:
            dx = grad @ weight
        elif needs[0] and more is not None:
            dx = torch.ops.graphmamba.add_product_fused(_rows(more), grad, weight.contiguous())
        return dx, d_weight if needs[1] else None, d_bias if needs[2] else None


def _rows(tensor: Tensor) -> Tensor:
    """Put all dimensions but the last into one, and channels next to one another."""
    rows = tensor if tensor.dim() == MATRIX else tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def may_round(tensor: Tensor) -> bool:
    """Tell whether products may be rounded to TF32; the interpreter, on a CPU, does not round."""
    return not tensor.is_cuda or torch.backends.cuda.matmul.fp32_precision == "tf32"

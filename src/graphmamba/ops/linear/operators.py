"""The fused gradients as operators that PyTorch can trace."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphmamba.ops.fusing import may_round
from graphmamba.ops.operators import add_operator, as_dense

MATRIX = 2
"""Dimensions of rows."""
NARROW = 16
"""Columns up to which tensor cores would be idle."""
LEAST_SMALL, MOST_SMALL = 32, 384
"""Channels of a weight between which kernels of ours are faster than PyTorch's products."""
MOST_OUT = 256
"""Channels up to which they are so in a forward pass."""
FEWEST_ROWS = 1024
"""Rows from which on they are."""
_WEIGHT = "weight_grad_fused(Tensor grad, Tensor x, bool has_bias) -> (Tensor, Tensor)"
_NARROW = "narrow_linear_fused(Tensor x, Tensor weight, Tensor? bias) -> Tensor"
_MAP = "map_rows_fused(Tensor x, Tensor weight, Tensor? bias, bool is_relu) -> Tensor"
_ROWS = "rows_grad_fused(Tensor grad, Tensor weight, Tensor? more) -> Tensor"
_SUMMED = (
    "rows_grad_summed_fused(Tensor grad, Tensor weight, Tensor? more, Tensor kept, Tensor normed, "
    "Tensor norm_weight, Tensor norm_bias, Tensor? seed, Tensor? count, str activation, "
    "float rate, int site) -> (Tensor, Tensor, Tensor)"
)
_RELU = "relu_grad_fused(Tensor grad, Tensor weight, Tensor kept) -> Tensor"
_SUMS = "column_sums_fused(Tensor grad) -> Tensor"


def _weight_grad(grad: Tensor, x: Tensor, has_bias: bool) -> tuple[Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.linear import fused

    with torch.cuda.device_of(grad):
        return fused.weight_grad(grad, x, has_bias)


def _narrow(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from graphmamba.ops.linear import fused

    with torch.cuda.device_of(x):
        return fused.narrow(*as_dense((x, weight, bias)))


def _map_rows(x: Tensor, weight: Tensor, bias: Tensor | None, is_relu: bool) -> Tensor:
    from graphmamba.ops.linear import product

    x, bias = as_dense((x, bias))
    with torch.cuda.device_of(x):
        return product.map_rows(x, weight, bias, is_relu)


def _rows_grad(grad: Tensor, weight: Tensor, more: Tensor | None) -> Tensor:
    from graphmamba.ops.linear import product

    grad, more = as_dense((grad, more))
    with torch.cuda.device_of(grad):
        return product.rows_grad(grad, weight, more)


def _rows_grad_summed(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    from graphmamba.ops.linear import summed

    grad, weight, *others = arguments
    grad, *others = as_dense((grad, *others))
    with torch.cuda.device_of(grad):
        return summed.rows_grad_summed(grad, weight, *others)


def _relu_grad(grad: Tensor, weight: Tensor, kept: Tensor) -> Tensor:
    from graphmamba.ops.linear import product

    grad, kept = as_dense((grad, kept))
    with torch.cuda.device_of(grad):
        return product.relu_grad(grad, weight, kept)


def _column_sums(grad: Tensor) -> Tensor:
    from graphmamba.ops.linear import fused

    with torch.cuda.device_of(grad):
        return fused.column_sums(grad)


def _fake_weight_grad(grad: Tensor, x: Tensor, has_bias: bool) -> tuple[Tensor, Tensor]:
    d_bias = grad.new_empty(grad.shape[1] if has_bias else 0)
    return grad.new_empty(grad.shape[1], x.shape[1]), d_bias


def _fake_narrow(x: Tensor, weight: Tensor, _: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _fake_map(x: Tensor, weight: Tensor, _: Tensor | None, __: bool) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _fake_rows(grad: Tensor, weight: Tensor, _: Tensor | None) -> Tensor:
    return grad.new_empty(grad.shape[0], weight.shape[1])


def _fake_summed(
    grad: Tensor, weight: Tensor, _: Tensor | None, kept: Tensor, *__: Any
) -> tuple[Tensor, Tensor, Tensor]:
    d_weight, d_bias = (kept.new_empty(kept.shape[1]) for _ in range(2))
    return grad.new_empty(grad.shape[0], weight.shape[1]), d_weight, d_bias


def _fake_sums(grad: Tensor) -> Tensor:
    return grad.new_empty(grad.shape[1])


for _schema, _compute, _fake in (
    (_NARROW, _narrow, _fake_narrow),
    (_WEIGHT, _weight_grad, _fake_weight_grad),
    (_MAP, _map_rows, _fake_map),
    (_ROWS, _rows_grad, _fake_rows),
    (_SUMMED, _rows_grad_summed, _fake_summed),
    (_RELU, _relu_grad, _fake_rows),
    (_SUMS, _column_sums, _fake_sums),
):
    add_operator(_schema, _compute, _fake)


class FusedLinear(torch.autograd.Function):
    """`torch.nn.functional.linear` with gradients from the kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Map the rows, in full precision where they are short."""
        ctx.save_for_backward(x, weight)
        if x.shape[-1] > NARROW:
            return mapped(x, weight, bias)
        y = torch.ops.graphmamba.narrow_linear_fused(as_rows(x), weight.contiguous(), bias)
        return y.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Find the gradients of weight and bias, then that of the rows."""
        x, weight = ctx.saved_tensors
        needs_x, *needs = ctx.needs_input_grad
        rows = as_rows(grad)
        found = parameter_grads(rows, as_rows(x), *needs)
        return grad_of_rows(rows, weight, None).view(x.shape) if needs_x else None, *found


class ThroughLinear(torch.autograd.Function):
    """The same, and the rows themselves, whose other gradient is added where this one is found."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Map the rows."""
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        return mapped(x, weight, bias), x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, more: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Find the gradients of weight and bias, then that of the rows."""
        x, weight = ctx.saved_tensors
        if grad is None:
            return more, None, None
        needs_x, *needs = ctx.needs_input_grad
        rows = as_rows(grad)
        found = parameter_grads(rows, as_rows(x), *needs)
        return grad_of_rows(rows, weight, more) if needs_x else None, *found


def is_ours_faster(rows: Tensor, weight: Tensor) -> bool:
    """Tell whether kernels of ours multiply rows and weight; the interpreter takes no others."""
    if max(weight.shape) > MOST_SMALL or not may_round(rows):
        return False
    is_large = min(weight.shape) >= LEAST_SMALL and rows.numel() >= FEWEST_ROWS * rows.shape[-1]
    return not rows.is_cuda or is_large


def is_map_ours(x: Tensor, weight: Tensor) -> bool:
    """Tell that of a forward pass."""
    return is_ours_faster(x, weight) and not (x.is_cuda and weight.shape[0] > MOST_OUT)


def mapped(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map rows that are not short."""
    if not is_map_ours(x, weight):
        return functional.linear(x, weight, bias)
    y: Tensor = torch.ops.graphmamba.map_rows_fused(as_rows(x), weight, bias, False)
    return y.view(*x.shape[:-1], weight.shape[0])


def grad_of_rows(rows: Tensor, weight: Tensor, more: Tensor | None) -> Tensor:
    """Gradient of the rows that were mapped, and more that they have from another use."""
    dx: Tensor
    if is_ours_faster(rows, weight):
        dx = torch.ops.graphmamba.rows_grad_fused(rows, weight, more)
    else:
        dx = rows @ weight
        dx = dx if more is None else dx + more
    return dx


def grad_before_relu(rows: Tensor, weight: Tensor, kept: Tensor) -> Tensor:
    """Gradient of what went into a ReLU, whose outputs were kept and then mapped."""
    found: Tensor
    if is_ours_faster(rows, weight):
        found = torch.ops.graphmamba.relu_grad_fused(rows, weight, kept)
    else:
        found = torch.ops.aten.threshold_backward(rows @ weight, kept, 0)
    return found


def parameter_grads(
    rows: Tensor, inputs: Tensor, needs_weight: bool, needs_bias: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weight and bias in one pass, or the bias's alone where nothing is rounded."""
    d_weight = d_bias = None
    if needs_weight and may_round(rows):
        d_weight, d_bias = torch.ops.graphmamba.weight_grad_fused(rows, inputs, needs_bias)
        return d_weight, d_bias if needs_bias else None
    # Kernels come first: a product would warn in a thread that has not met the GPU yet.
    if needs_bias:
        d_bias = torch.ops.graphmamba.column_sums_fused(rows)
    if needs_weight:
        d_weight = rows.T @ inputs
    return d_weight, d_bias


def as_rows(tensor: Tensor) -> Tensor:
    """Put all dimensions but the last into one, and channels next to one another."""
    rows = tensor if tensor.dim() == MATRIX else tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()

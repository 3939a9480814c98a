"""The fused form as operators that PyTorch can trace, and their gradients.

The forward operator changes the running statistics, and PyTorch gives no gradients to operators
that change anything; so a function of autograd stands around it.
"""

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from graphmamba.ops.operators import add_operator, as_dense

_PLACES = "Tensor? seed_before, Tensor? seed_after, Tensor? count"
_SETTINGS = "str activation, float[] rates, int[] sites, bool is_training"
_FORWARD = (
    f"batch_norm_act_fused(Tensor x, Tensor weight, Tensor bias, Tensor? before, Tensor? after, "
    f"{_PLACES}, Tensor(a!) running_mean, Tensor(b!) running_var, Tensor(c!)? batches, "
    f"{_SETTINGS}, float momentum, float eps) -> (Tensor, Tensor)"
)
_BACKWARD = (
    f"batch_norm_act_fused_backward(Tensor grad, Tensor kept, Tensor x, Tensor weight, "
    f"Tensor bias, Tensor? before, {_PLACES}, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
_ACTIVATE = (
    "activate_drop_fused(Tensor x, Tensor? grad, Tensor seed, str activation, float rate, "
    "int site) -> Tensor"
)


def sum_type(*rows: Tensor | None) -> torch.dtype:
    """Return the type of a sum of rows; some may not be there."""
    return reduce(torch.promote_types, (each.dtype for each in rows if each is not None))


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.batch_norm import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.forward(*as_dense(arguments))


def _backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from graphmamba.ops.batch_norm import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.backward(*as_dense(arguments))


def _activate(*arguments: Any) -> Tensor:
    from graphmamba.ops.batch_norm import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.activate_drop(*as_dense(arguments))


def _fake_activate(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_forward(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    before, after = arguments[2:4]
    kept = x.new_empty((2, x.shape[1]), dtype=torch.float32)
    return x.new_empty(x.shape, dtype=sum_type(x, before, after)), kept


def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, weight, bias, before = arguments[2:6]
    rates = arguments[10]
    is_apart = before is not None and (rates[0] > 0 or before.dtype != x.dtype)
    d_before = (x if before is None else before).new_empty(x.shape if is_apart else (0,))
    return (
        x.new_empty(x.shape),
        weight.new_empty(weight.shape),
        bias.new_empty(bias.shape),
        d_before,
    )


for _schema, _compute, _fake in (
    (_FORWARD, _forward, _fake_forward),
    (_BACKWARD, _backward, _fake_backward),
    (_ACTIVATE, _activate, _fake_activate),
):
    add_operator(_schema, _compute, _fake)


class BatchNormAct(torch.autograd.Function):
    """The operator with its gradients; arguments as in the schema."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Run both kernels of the forward pass."""
        out, kept = torch.ops.graphmamba.batch_norm_act_fused(*arguments)
        x, weight, bias, before, after, *places = arguments[:8]
        ctx.settings, ctx.has_after = arguments[11:15], after is not None
        ctx.save_for_backward(kept, x, weight, bias, before, *places)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Run both kernels of the backward pass."""
        before = ctx.saved_tensors[4]
        dx, d_weight, d_bias, d_before = torch.ops.graphmamba.batch_norm_act_fused_backward(
            grad, *ctx.saved_tensors, *ctx.settings
        )
        if before is not None and d_before.shape != dx.shape:
            d_before = dx
        given = dx, d_weight, d_bias, None if before is None else d_before
        return *given, grad if ctx.has_after else None, *[None] * 12


class ActivateDrop(torch.autograd.Function):
    """drop(activation(x)), which keeps x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor, *settings: Any) -> Tensor:
        """Run the kernel."""
        ctx.save_for_backward(x, seed)
        ctx.settings = settings
        return torch.ops.graphmamba.activate_drop_fused(x, None, seed, *settings)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Run it on the gradient."""
        x, seed = ctx.saved_tensors
        dx = torch.ops.graphmamba.activate_drop_fused(x, grad, seed, *ctx.settings)
        return dx, *[None] * 4

"""The fused form as operators that PyTorch can trace, and its gradients."""

from typing import Any

import torch
from torch import Tensor

from graphmamba.ops.batch_norm.operators import sum_type
from graphmamba.ops.operators import add_operator, as_dense

_PLACES = "Tensor? seed, Tensor? count"
_SETTINGS = "float rate, int site, bool is_training"
_FORWARD = (
    "batch_norm_pair_fused(Tensor a, Tensor b, Tensor? before, Tensor weight_a, Tensor bias_a, "
    f"Tensor weight_b, Tensor bias_b, {_PLACES}, Tensor(a!) mean_a, Tensor(b!) var_a, "
    "Tensor(c!)? batches_a, Tensor(d!) mean_b, Tensor(e!) var_b, Tensor(f!)? batches_b, "
    f"{_SETTINGS}, float[] momenta, float[] eps) -> (Tensor, Tensor)"
)
_BACKWARD = (
    "batch_norm_pair_fused_backward(Tensor grad, Tensor kept, Tensor a, Tensor b, Tensor? before, "
    f"Tensor weight_a, Tensor weight_b, {_PLACES}, {_SETTINGS}) -> Tensor[]"
)


def is_apart(b: Tensor, before: Tensor | None, rate: float) -> bool:
    """Tell whether before has another gradient than b."""
    return before is not None and (rate > 0 or before.dtype != b.dtype)


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.batch_norm.pair import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.forward(*as_dense(arguments))


def _backward(*arguments: Any) -> list[Tensor]:
    from graphmamba.ops.batch_norm.pair import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.backward(*as_dense(arguments))


def _fake_forward(a: Tensor, b: Tensor, before: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    y = a.new_empty(a.shape, dtype=sum_type(a, b, before))
    return y, a.new_empty((2, 2, a.shape[1]), dtype=torch.float32)


def _fake_backward(*arguments: Any) -> list[Tensor]:
    a, b, before, weight_a, weight_b = arguments[2:7]
    shape = b.shape if is_apart(b, before, arguments[9]) else (0,)
    d_before = (b if before is None else before).new_empty(shape)
    weights = weight_a, weight_b, weight_a, weight_b
    return [
        *(x.new_empty(x.shape) for x in (a, b)),
        d_before,
        *(torch.empty_like(x) for x in weights),
    ]


add_operator(_FORWARD, _forward, _fake_forward)
add_operator(_BACKWARD, _backward, _fake_backward)


class BatchNormPair(torch.autograd.Function):
    """The operator with its gradients; arguments as in the schema."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Run both kernels of the forward pass."""
        out, kept = torch.ops.graphmamba.batch_norm_pair_fused(*arguments)
        a, b, before, weight_a, _, weight_b, _, seed, count = arguments[:9]
        ctx.settings = arguments[15:18]
        ctx.save_for_backward(kept, a, b, before, weight_a, weight_b, seed, count)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Run both kernels of the backward pass."""
        before = ctx.saved_tensors[3]
        da, db, d_before, d_weight_a, d_weight_b, d_bias_a, d_bias_b = (
            torch.ops.graphmamba.batch_norm_pair_fused_backward(
                grad, *ctx.saved_tensors, *ctx.settings
            )
        )
        if before is not None and d_before.shape != db.shape:
            d_before = db
        given = da, db, None if before is None else d_before
        return *given, d_weight_a, d_bias_a, d_weight_b, d_bias_b, *[None] * 13

"""The fused network over frequencies as operators that PyTorch can trace, and its gradients."""

from typing import Any

import torch
from torch import Tensor

from graphmamba.operators import add_operator, as_dense

_ARGUMENTS = (
    "Tensor vectors, Tensor values, Tensor? signs, "
    "Tensor first, Tensor first_bias, Tensor last, Tensor last_bias"
)
_FORWARD = f"deep_set_fused({_ARGUMENTS}) -> Tensor"
_BACKWARD = (
    f"deep_set_fused_backward(Tensor grad, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _forward(vectors: Tensor, *others: Any) -> Tensor:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.encode.deep_set import fused

    with torch.cuda.device_of(vectors):
        return fused.forward(*as_dense((vectors, *others)))


def _backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    from graphmamba.encode.deep_set import fused

    with torch.cuda.device_of(grad):
        return fused.backward(*as_dense((grad, *arguments)))


def _fake_forward(vectors: Tensor, *others: Any) -> Tensor:
    return vectors.new_empty(vectors.shape[0], others[-1].shape[0])


def _fake_backward(_: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return tuple(each.new_empty(each.shape) for each in arguments[3:])


for _schema, _compute, _fake in (
    (_FORWARD, _forward, _fake_forward),
    (_BACKWARD, _backward, _fake_backward),
):
    add_operator(_schema, _compute, _fake)


class FusedDeepSet(torch.autograd.Function):
    """Entries, eigenvalues, signs and both maps; the maps get gradients."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Run the kernel."""
        ctx.save_for_backward(*arguments)
        found: Tensor = torch.ops.graphmamba.deep_set_fused(*arguments)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Run both kernels of the backward pass."""
        found = torch.ops.graphmamba.deep_set_fused_backward(grad, *ctx.saved_tensors)
        return None, None, None, *found

"""The fused selection as operators that PyTorch can trace, and its gradients."""

from typing import Any

import torch
from torch import Tensor

from graphmamba.ops.operators import add_operator, as_dense

_FORWARD = "selection_fused(Tensor u, Tensor select, Tensor step) -> (Tensor, Tensor)"
_STEPS = "raw_steps_fused(Tensor out, Tensor select, Tensor step) -> Tensor"
_BACKWARD = (
    "selection_fused_backward(Tensor du, Tensor d_delta, Tensor dB, Tensor dC, Tensor u, "
    "Tensor out, Tensor select, Tensor step) -> (Tensor, Tensor, Tensor)"
)


def _forward(u: Tensor, select: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.selection import fused

    with torch.cuda.device_of(u):
        return fused.forward(*as_dense((u, select.contiguous(), step.contiguous())))


def _raw_steps(out: Tensor, select: Tensor, step: Tensor) -> Tensor:
    from graphmamba.ops.selection import fused

    with torch.cuda.device_of(out):
        return fused.raw_steps(out, select.contiguous(), step.contiguous())


def _backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    from graphmamba.ops.selection import fused

    with torch.cuda.device_of(arguments[0]):
        *rows, select, step = arguments
        return fused.backward(*as_dense((*rows, select.contiguous(), step.contiguous())))


def _fake_forward(u: Tensor, select: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape[0], -(-select.shape[0] // 4) * 4), u.new_empty(u.shape)


def _fake_steps(out: Tensor, _: Tensor, step: Tensor) -> Tensor:
    return out.new_empty(out.shape[0], step.shape[0])


def _fake_backward(*arguments: Tensor) -> tuple[Tensor, ...]:
    u, _, select, step = arguments[4:]
    return tuple(each.new_empty(each.shape) for each in (u, select, step))


for _schema, _compute, _fake in (
    (_FORWARD, _forward, _fake_forward),
    (_STEPS, _raw_steps, _fake_steps),
    (_BACKWARD, _backward, _fake_backward),
):
    add_operator(_schema, _compute, _fake)


class FusedSelection(torch.autograd.Function):
    """u, raw steps, B and C, and all of them but u and the steps as they were laid out.

    u is handed through, so that the gradient of its other uses is added where its own is found.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, select: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        """Run the kernel."""
        out, delta = torch.ops.graphmamba.selection_fused(u, select, step)
        state = (select.shape[0] - step.shape[1]) // 2
        ctx.save_for_backward(u, out, select, step)
        ctx.mark_non_differentiable(out)
        # Else a gradient of zeros would be made for what has none.
        ctx.set_materialize_grads(False)
        return u.view_as(u), delta, out[:, :state], out[:, state : 2 * state], out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Run both kernels of the backward pass."""
        u, out, _, step = ctx.saved_tensors
        state = (ctx.saved_tensors[2].shape[0] - step.shape[1]) // 2
        widths = u.shape[1], u.shape[1], state, state
        given = (
            out.new_zeros(out.shape[0], width) if grad is None else grad
            for grad, width in zip(grads[:4], widths, strict=True)
        )
        found = torch.ops.graphmamba.selection_fused_backward(*given, *ctx.saved_tensors)
        return found[0], found[1], found[2]

"""Losses for float32 on a GPU that find their gradient on the way.

At most three kernels, one where a single program can hold all rows, and a product for the backward
pass, where PyTorch takes about thirty: programs count the labelled rows by class, others add the
counts up, so that they know weights and divisor, and leave a share of the loss each, and the last
one adds the shares. Repeats give the same bits.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.task.fused_losses.operators import CLASSES, ENTRIES, TWO_CLASSES

__all__ = ["class_loss", "entry_loss", "two_class_loss"]

Scalar = Float[Tensor, ""]
EntryLoss = Literal["binary_cross_entropy", "l1"]


def class_loss(
    logits: Float[Tensor, "rows classes"], label: Int[Tensor, " rows"], *, is_weighted: bool
) -> Scalar:
    """Mean of the cross-entropies of all labelled rows.

    Args:
        logits: One for each class.
        label: The class of each row, negative if there is none; the loss of one that is beyond the
            last class is no number.
        is_weighted: Whether a class is the heavier the rarer it is.
    """
    _check_shape("label", label, (logits.shape[0],))
    return _FusedLoss.apply(logits, CLASSES, label, is_weighted)  # type: ignore[no-untyped-call]


def two_class_loss(logits: Float[Tensor, "rows 1"], label: Int[Tensor, " rows"]) -> Scalar:
    """Binary cross-entropies, the heavier the rarer their class, by the number of labelled rows."""
    _check_shape("logits", logits, (label.shape[0], 1))
    return _FusedLoss.apply(logits, TWO_CLASSES, label)  # type: ignore[no-untyped-call]


def entry_loss(
    prediction: Float[Tensor, "rows outputs"],
    target: Float[Tensor, "rows outputs"],
    *,
    loss: EntryLoss,
) -> Scalar:
    """Mean of the losses of all entries whose target is a number."""
    _check_shape("target", target, tuple(prediction.shape))
    return _FusedLoss.apply(prediction, ENTRIES, target, loss == "l1")  # type: ignore[no-untyped-call]


class _FusedLoss(torch.autograd.Function):
    """The loss of one of the operators; its gradient is kept, and waits for a factor."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, operator: Any, *others: Any) -> Tensor:
        loss, gradient = operator(logits, *others)
        ctx.save_for_backward(gradient)
        ctx.others = len(others)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * grad, None, *[None] * ctx.others


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    # A kernel would read on where a tensor is too short.
    if tensor.shape != shape:
        raise UserError(f"{name} must be of shape {shape}, got {tuple(tensor.shape)}")

"""The fused losses as operators that PyTorch can trace: the loss, and its gradient beside it."""

from typing import Any

import torch
from torch import Tensor

from graphmamba.operators import add_operator

_CLASSES = "class_loss_fused(Tensor logits, Tensor label, bool is_weighted) -> (Tensor, Tensor)"
_TWO = "two_class_loss_fused(Tensor logits, Tensor label) -> (Tensor, Tensor)"
_ENTRIES = "entry_loss_fused(Tensor prediction, Tensor target, bool is_l1) -> (Tensor, Tensor)"


def _classes(logits: Tensor, label: Tensor, is_weighted: bool) -> tuple[Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.task.fused_losses import fused

    with torch.cuda.device_of(logits):
        return fused.class_loss(logits.contiguous(), label.contiguous(), is_weighted)


def _two_classes(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    from graphmamba.task.fused_losses import fused

    with torch.cuda.device_of(logits):
        return fused.two_class_loss(logits.contiguous(), label.contiguous())


def _entries(prediction: Tensor, target: Tensor, is_l1: bool) -> tuple[Tensor, Tensor]:
    from graphmamba.task.fused_losses import fused

    with torch.cuda.device_of(prediction):
        return fused.entry_loss(prediction.contiguous(), target.contiguous(), is_l1)


def _fake(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return logits.new_empty(()), logits.new_empty(logits.shape)


CLASSES = add_operator(_CLASSES, _classes, _fake)
TWO_CLASSES = add_operator(_TWO, _two_classes, _fake)
ENTRIES = add_operator(_ENTRIES, _entries, _fake)

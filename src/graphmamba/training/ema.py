"""Exponential moving average of the weights (`train.ema_decay`)."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from graphmamba.nn.model import GraphMamba


class MovingAverage(nn.Module):
    """A second model whose weights are the exponential moving average of those of the first.

    Parameters and the running statistics of norms are averaged; integers such as seeds and counters
    are copied. All tensors, the step number included, are updated in place, so that a CUDA graph
    can do it.

    Args:
        model: The model to average; its tensors must be updated in place as well.
        decay: Weight of the old average in a step, between 0 and 1.
    """

    model: GraphMamba
    """The average; in evaluation mode."""
    steps: Tensor
    """Number of updates."""

    def __init__(self, model: GraphMamba, decay: float) -> None:
        super().__init__()
        self.model = deepcopy(model).requires_grad_(False).eval()
        device = next(model.parameters()).device
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self._least_share = 1 - decay
        self._weights, self._counters = _tensors(model)
        self._means, self._copies = _tensors(self.model)

    @torch.no_grad()
    def update(self) -> None:
        """Update after a step; reads nothing from the device."""
        self.steps.add_(1)
        # Without a limit of (1 + t) / (10 + t) to the decay at step t, the poor weights that a run
        # begins with would linger. Its rest is written out, which no difference near 0 rounds.
        share = (9 / (10 + self.steps)).clamp_min(self._least_share)
        changes = torch._foreach_sub(self._weights, self._means)
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(self._means, changes)
        torch._foreach_copy_(self._copies, self._counters)


def _tensors(model: GraphMamba) -> tuple[list[Tensor], list[Tensor]]:
    """The floating point and the integer tensors."""
    tensors = [*model.parameters(), *model.buffers()]
    real = [each for each in tensors if each.is_floating_point()]
    return real, [each for each in tensors if not each.is_floating_point()]

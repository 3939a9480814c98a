"""Learning rate schedules: linear warm-up with cosine decay, plateau, constant."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from graphmamba.training.experiment import OptimConfig

SMALLEST_FACTOR = 1e-6
"""Factor on the learning rate in the first warm-up epoch, as in the published runs."""
PROGRESS = 1e-4
"""Relative decrease of the validation loss that counts as an improvement for `plateau`."""


def warmup_cosine(epoch: int, warmup: int, epochs: int) -> float:
    """Factor on the learning rate in an epoch: linear warm-up, then cosine decay.

    Epochs count from 0. Epoch 0 of a warm-up has almost 0, epoch `warmup` has 1, the last more than
    0.
    """
    if epoch < warmup:
        return max(SMALLEST_FACTOR, epoch / warmup)
    # a run that is nothing but warm-up has no cosine to walk down
    progress = (epoch - warmup) / max(epochs - warmup, 1)
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


class Schedule:
    """The learning rate of each step, as `optim` says."""

    def __init__(self, optim: OptimConfig, epochs: int) -> None:
        self._optim, self._epochs = optim, epochs
        self._plateau_rate = optim.lr
        self._lowest_loss = math.inf
        self._waited = 0

    def rate(self, epoch: int, step: int = 0, steps: int = 1) -> float:
        """Learning rate of a step.

        Args:
            epoch: Counted from 0.
            step: In the epoch, counted from 0; used if the warm-up is counted in steps.
            steps: Of an epoch.
        """
        optim = self._optim
        if optim.schedule == "cosine" and optim.warmup_steps:
            # one more, so that the first step has a rate that moves something
            taken, whole = epoch * steps + step + 1, self._epochs * steps
            return optim.lr * warmup_cosine(taken, optim.warmup_steps, whole + 1)
        if optim.schedule == "cosine":
            return optim.lr * warmup_cosine(epoch, optim.warmup, self._epochs)
        return self._plateau_rate

    def observe(self, validation_loss: float) -> None:
        """Record an epoch; `plateau` lowers the rate after `patience` epochs without progress."""
        if self._optim.schedule != "plateau":
            return
        if validation_loss < self._lowest_loss * (1.0 - PROGRESS):
            self._lowest_loss, self._waited = validation_loss, 0
            return
        self._waited += 1
        if self._waited > self._optim.patience:
            lowered = self._plateau_rate * self._optim.factor
            self._plateau_rate = max(lowered, self._optim.min_lr)
            self._waited = 0

    def state_dict(self) -> dict[str, Any]:
        """The state, as JSON-serialisable values."""
        lowest = self._lowest_loss if math.isfinite(self._lowest_loss) else None
        return {"rate": self._plateau_rate, "lowest_loss": lowest, "waited": self._waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        lowest = state["lowest_loss"]
        self._lowest_loss = math.inf if lowest is None else lowest
        self._plateau_rate, self._waited = state["rate"], state["waited"]


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters; a rate that is a tensor is changed in place."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

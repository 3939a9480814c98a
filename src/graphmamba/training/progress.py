"""Where a run stands."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmamba.training.results import Scores


@dataclass(frozen=True)
class Best:
    """The epoch that was chosen so far."""

    epoch: int
    value: float
    """Its validation score."""
    scores: Mapping[str, Scores]
    """All its scores by split."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """The model's tensors then."""


@dataclass
class Progress:
    """What was done, and the sums of the epoch that is going on."""

    epoch: int = 0
    """Counted from 0."""
    step: int = 0
    """Steps made in this epoch."""
    taken: int = 0
    """Steps made in all."""
    loss_sum: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Losses of this process's steps in this epoch times their labels; stays on the device."""
    labels: int = 0
    """Labels of this process's steps in this epoch."""
    train_seconds: float = 0.0
    """Time of this epoch's steps."""
    seconds: float = 0.0
    """Time of the whole run, as far as it was saved."""
    best: Best | None = None

    def count(self, loss: Tensor, labels: int) -> None:
        """Take in a step; reads nothing from the device."""
        self.loss_sum += loss.double() * labels
        self.labels += labels
        self.step += 1
        self.taken += 1

    def next_epoch(self) -> None:
        """Begin another epoch."""
        self.epoch, self.step, self.labels, self.train_seconds = self.epoch + 1, 0, 0, 0.0
        self.loss_sum = torch.zeros_like(self.loss_sum)

    @property
    def best_epoch(self) -> int:
        """The chosen epoch, -1 where there is none."""
        return -1 if self.best is None else self.best.epoch

    def is_better(self, value: float, is_lower_better: bool) -> bool:
        """Whether a validation score beats all before; what is not a number beats nothing."""
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        return value < self.best.value if is_lower_better else value > self.best.value

    def content(self) -> dict[str, Any]:
        """Everything but tensors and sums, as JSON can write it."""
        best = self.best
        return {
            "epoch": self.epoch,
            "step": self.step,
            "taken": self.taken,
            "train_seconds": self.train_seconds,
            "seconds": self.seconds,
            "best": best and {"epoch": best.epoch, "value": best.value, "scores": best.scores},
        }

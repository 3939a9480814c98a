"""The learning rate over the epochs of a run."""

import math
from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

from graphmamba.training.experiment import Recipe

SMALLEST_FACTOR = 1e-6
"""Share of the learning rate in the very first epoch of a warm-up, as in the published runs."""
PROGRESS = 1e-4
"""Share by which the validation loss must fall to count as better, where `plateau` watches it."""


def warmup_cosine(epoch: int, warmup: int, epochs: int) -> float:
    """Share of the learning rate in an epoch counted from 0: a line up, then half a cosine down.

    Epoch 0 of a warm-up has next to nothing, epoch `warmup` the whole; the last has more than 0.
    """
    if epoch < warmup:
        return max(SMALLEST_FACTOR, epoch / warmup)
    # a run that is nothing but warm-up has no cosine to walk down
    progress = (epoch - warmup) / max(epochs - warmup, 1)
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


class Schedule:
    """The learning rate of each epoch, as a recipe asks for it.

    Args:
        recipe: Kind of schedule, and its numbers.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._plateau_rate = recipe.learning_rate
        self._lowest_loss = math.inf
        self._waited = 0

    def rate(self, epoch: int) -> float:
        """Learning rate of an epoch counted from 0."""
        recipe = self._recipe
        if recipe.schedule == "cosine":
            return recipe.learning_rate * warmup_cosine(epoch, recipe.warmup, recipe.epochs)
        return self._plateau_rate

    def observe(self, validation_loss: float) -> None:
        """Take note of an epoch; `plateau` lowers the rate after too many without progress."""
        if self._recipe.schedule != "plateau":
            return
        if validation_loss < self._lowest_loss * (1.0 - PROGRESS):
            self._lowest_loss, self._waited = validation_loss, 0
            return
        self._waited += 1
        if self._waited > self._recipe.patience:
            lowered = self._plateau_rate * self._recipe.factor
            self._plateau_rate = max(lowered, self._recipe.least_learning_rate)
            self._waited = 0

    def state_dict(self) -> dict[str, float | int | None]:
        """What the rates to come depend on, as JSON can write it."""
        lowest = self._lowest_loss if math.isfinite(self._lowest_loss) else None
        return {"rate": self._plateau_rate, "lowest_loss": lowest, "waited": self._waited}

    def load_state_dict(self, state: Mapping[str, float | int | None]) -> None:
        """Go on where another schedule of the same recipe stood."""
        lowest = state["lowest_loss"]
        self._plateau_rate = float(state["rate"] or 0.0)
        self._lowest_loss = math.inf if lowest is None else float(lowest)
        self._waited = int(state["waited"] or 0)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give all parameters a learning rate; one that is a tensor stays the same tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

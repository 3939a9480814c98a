"""How a model is trained, as data."""

from dataclasses import dataclass
from typing import Literal

from graphmamba.checks import check_fraction, check_least, check_types
from graphmamba.data.catalog import LossName
from graphmamba.errors import UserError

OptimizerName = Literal["adamw", "adam"]
ScheduleName = Literal["cosine", "plateau", "constant"]


@dataclass(frozen=True)
class Recipe:
    """Optimiser, schedule and batches of one run."""

    batch_size: int = 32
    """Graphs in a batch."""
    epochs: int = 100
    """Passes over the training set."""
    learning_rate: float = 1e-3
    """Highest learning rate."""
    weight_decay: float = 0.0
    """Pull of all parameters towards 0, biases and norms included."""
    optimizer: OptimizerName = "adamw"
    """`adamw` decays the weights themselves, `adam` through the gradient."""
    clip: float = 1.0
    """Largest norm of the gradient of all parameters together; 0 leaves it as it is."""
    schedule: ScheduleName = "cosine"
    """`cosine`: a line up over `warmup`, then half a cosine down; `plateau`: times `factor` where
    the validation loss has not improved for `patience` epochs; `constant`."""
    warmup: int = 5
    """Epochs on the way up, where `schedule` is `cosine`."""
    patience: int = 10
    """Epochs without progress, where `schedule` is `plateau`."""
    factor: float = 0.5
    """What the learning rate is multiplied by then."""
    least_learning_rate: float = 1e-5
    """Where a `plateau` schedule stops lowering it."""
    loss: LossName | None = None
    """What is minimised, one of those that fit the labels; null takes the benchmark's own. Weighted
    ones balance the classes of a batch: one whose labels are all the same teaches nothing."""
    average: float = 0.0
    """How much of the moving average of the weights is left after a step; it is scored, chosen and
    kept in the place of the weights themselves. 0 averages nothing."""
    statistics: int = 0
    """Batches of training graphs over which norms take their statistics anew before each epoch is
    scored; 0 scores with the running ones."""

    def __post_init__(self) -> None:
        check_types(self, "recipe.")
        for name in ("batch_size", "epochs", "patience"):
            check_least(f"recipe.{name}", getattr(self, name), 1)
        for name in ("warmup", "weight_decay", "clip", "least_learning_rate", "statistics"):
            check_least(f"recipe.{name}", getattr(self, name), 0)
        check_fraction("recipe.average", self.average)
        if not 0 < self.learning_rate < float("inf"):
            raise UserError(
                f"recipe.learning_rate must be positive and finite, got {self.learning_rate!r}"
            )
        if not 0 < self.factor < 1:
            raise UserError(f"recipe.factor must be between 0 and 1, got {self.factor!r}")

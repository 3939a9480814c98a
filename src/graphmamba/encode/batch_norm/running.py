"""What a batch norm remembers of the batches that it saw."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Running:
    """Statistics that evaluation normalises with; changed in place by training."""

    mean: Float[Tensor, " channels"]
    variance: Float[Tensor, " channels"]
    batches: Int[Tensor, ""] | None = None
    """Number of batches taken in, where it is counted."""
    momentum: float = 0.1
    """Share of a new batch."""

    @torch.no_grad()
    def move(
        self,
        mean: Float[Tensor, " channels"],
        variance: Float[Tensor, " channels"],
        is_enough: Bool[Tensor, ""],
    ) -> None:
        """Take in a batch, if it is large enough to have a variance."""
        step = self.momentum * is_enough.to(self.mean.dtype)
        self.mean.lerp_(mean.to(self.mean.dtype), step)
        self.variance.lerp_(variance.to(self.variance.dtype), step)
        if self.batches is not None:
            self.batches.add_(is_enough)

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

    def move(
        self,
        mean: Float[Tensor, " channels"],
        variance: Float[Tensor, " channels"],
        is_enough: Bool[Tensor, ""],
    ) -> None:
        """Take in a batch, if it is large enough to have a variance.

        Rows may be so large that their squares are not finite. Such a channel is left out: it would
        never be finite again.
        """
        mean, variance = mean.to(self.mean.dtype), variance.to(self.variance.dtype)
        moves = is_enough & mean.isfinite() & variance.isfinite()
        # As a statement: compilers do not see through it as a decorator.
        with torch.no_grad():
            self.mean.copy_(torch.where(moves, self.mean.lerp(mean, self.momentum), self.mean))
            moved = self.variance.lerp(variance, self.momentum)
            self.variance.copy_(torch.where(moves, moved, self.variance))
            if self.batches is not None:
                self.batches.add_(is_enough)

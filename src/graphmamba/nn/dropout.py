"""Dropout whose mask is the same on every device, whatever computes it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_fraction
from graphmamba.ops.batch_norm.drop import Drop, dropped


class Dropout(nn.Module):
    r"""Dropout whose mask follows from a seed, the place in the model, the row and the channel.

    .. math:: y = x \odot m / (1 - p), \quad m \in \{0, 1\}, \quad P(m = 0) = p

    Args:
        rate: p, in training.
    """

    site: int = 0
    """Tells apart the dropouts that share a seed (`number_dropouts`)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_fraction("dropout", rate)
        self.rate = rate

    def forward(
        self, x: Float[Tensor, "rows channels"], seed: Int[Tensor, ""] | None = None
    ) -> Float[Tensor, "rows channels"]:
        """Drop entries in training; without a seed, PyTorch's generator draws one."""
        if not (self.training and self.rate):
            return x
        if seed is None:
            seed = torch.randint(1 << 62, (), device=x.device)
        return dropped(x, Drop(self.rate, seed, self.site))


def number_dropouts(module: nn.Module) -> None:
    """Give the dropouts inside of a module, which share a seed, a number each."""
    parts = [part for part in module.modules() if isinstance(part, Dropout)]
    for number, part in enumerate(parts):
        part.site = number

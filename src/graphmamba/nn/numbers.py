"""Columns of numbers: standardised if asked for, then one linear layer."""

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.nn.superpixels import Statistics


class NumberEncoder(nn.Module):
    """Linear layer on raw columns.

    Args:
        columns: Raw columns.
        channels: Width of the result.
        statistics: Mean and deviation that standardise the columns first; `None` leaves them raw,
            as the published numbers do.
    """

    def __init__(self, columns: int, channels: int, statistics: Statistics | None = None) -> None:
        super().__init__()
        self.standardize = nn.Identity() if statistics is None else Standardize(statistics)
        self.linear = nn.Linear(columns, channels)

    def forward(self, numbers: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows channels"]:
        """Standardise and project."""
        return self.linear(self.standardize(numbers))


class Standardize(nn.Module):
    """Subtract the mean, divide by the deviation; both travel with the weights as buffers."""

    mean: Float[Tensor, " columns"]
    deviation: Float[Tensor, " columns"]

    def __init__(self, statistics: Statistics) -> None:
        super().__init__()
        self.register_buffer("mean", Tensor(statistics.mean))
        self.register_buffer("deviation", Tensor(statistics.deviation))

    def forward(self, numbers: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        """Give each column mean 0 and deviation 1 over the training set."""
        return (numbers - self.mean) / self.deviation

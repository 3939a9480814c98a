"""Integer columns, each with its own vocabulary: atoms and bonds."""

from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class CategoryEncoder(nn.Module):
    r"""Sum of one learned vector per column.

    .. math:: y = \sum_c W_c[i_c]

    The tables of all columns are rows of one matrix, and each is initialised as if it stood alone
    (Xavier uniform). The sum is the product of that matrix with a row of zeros and ones, whose
    gradient is a product too: the same bits on every run, which a lookup would not give.

    Args:
        vocabulary: Number of values of each column.
        channels: Width of the vectors.
    """

    offsets: Int[Tensor, " columns"]

    def __init__(self, vocabulary: tuple[int, ...], channels: int) -> None:
        super().__init__()
        bounds = list(accumulate(vocabulary, initial=0))
        self.weight = nn.Parameter(torch.empty(bounds[-1], channels))
        self.register_buffer("offsets", torch.tensor(bounds[:-1]), persistent=False)
        for start, end in pairwise(bounds):
            nn.init.xavier_uniform_(self.weight.data[start:end])

    def forward(self, columns: Int[Tensor, "rows columns"]) -> Float[Tensor, "rows channels"]:
        """Add up the vectors of the values of all columns."""
        entries = self.weight.new_zeros(columns.shape[0], self.weight.shape[0])
        return entries.scatter(1, columns + self.offsets, 1.0) @ self.weight

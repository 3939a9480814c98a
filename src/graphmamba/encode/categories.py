"""Integer columns, each with its own vocabulary: atoms and bonds."""

from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.encode.category_sum import category_sum


class CategoryEncoder(nn.Module):
    """Sum of one learned vector per column.

    The tables of all columns are rows of one matrix, so that one lookup serves them all; each is
    initialised as if it stood alone (Xavier uniform).

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
        """Look up every column and add up."""
        return category_sum(columns, self.offsets, self.weight)

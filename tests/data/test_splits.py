"""Random splits have their shares."""

import pytest
import torch

from graphmamba.data.splits import random_split


@pytest.mark.parametrize(
    ("graphs", "fractions", "sizes"),
    [
        (10, (0.8, 0.1, 0.1), [8, 1, 1]),
        (7, (0.8, 0.1, 0.1), [5, 1, 1]),
        (1, (0.8, 0.1, 0.1), [1, 0, 0]),
        (2, (0.8, 0.1, 0.1), [1, 1, 0]),
        (5, (0.0, 0.0, 1.0), [0, 0, 5]),
        (100, (0.29, 0.36, 0.35), [29, 36, 35]),
        (0, (0.8, 0.1, 0.1), [0, 0, 0]),
        # graphs that are left go where most is missing
        (10, (0.5, 0.26, 0.24), [5, 3, 2]),
        (10, (0.5, 0.24, 0.26), [5, 2, 3]),
        (10, (0.54, 0.23, 0.23), [6, 2, 2]),
        (11, (0.8, 0.1, 0.1), [9, 1, 1]),
        (7, (0.34, 0.33, 0.33), [3, 2, 2]),
    ],
)
def test_splits_have_their_shares(
    graphs: int, fractions: tuple[float, float, float], sizes: list[int]
) -> None:
    split = random_split(graphs, fractions, seed=3)
    assert split.bincount(minlength=3).tolist() == sizes
    assert torch.equal(split, random_split(graphs, fractions, seed=3))
    if graphs == 100:
        assert not torch.equal(split, random_split(graphs, fractions, seed=4))

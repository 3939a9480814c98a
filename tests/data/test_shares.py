"""Shares of graphs that are no whole numbers, and the sizes that communities may have."""

import pytest

from graphmamba.data.splits import random_split


@pytest.mark.parametrize(
    ("graphs", "fractions", "sizes"),
    [
        (10, (0.5, 0.26, 0.24), [5, 3, 2]),
        (10, (0.5, 0.24, 0.26), [5, 2, 3]),
        (10, (0.54, 0.23, 0.23), [6, 2, 2]),
        (11, (0.8, 0.1, 0.1), [9, 1, 1]),
        (7, (0.34, 0.33, 0.33), [3, 2, 2]),
    ],
)
def test_graphs_that_are_left_go_where_most_is_missing(
    graphs: int, fractions: tuple[float, float, float], sizes: list[int]
) -> None:
    assert random_split(graphs, fractions).bincount(minlength=3).tolist() == sizes

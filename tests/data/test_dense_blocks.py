"""Padded blocks for the graphs of a batch, sorted by size."""

import numpy as np
import pytest

from graphmamba.data.batch import blocks_for, descending, do_fit, usual_lengths


@pytest.mark.parametrize(
    ("lengths", "blocks"),
    [
        ([9], ((1, 16),)),
        ([0, 0], ((2, 16),)),
        ([500] * 32, ((32, 512),)),
        # Ranks 0, 4, 8 and 16 decide; 190 is too near to 200 for a block of its own.
        ([200] * 4 + [190] * 4 + [150] * 8 + [60] * 16, ((8, 208), (8, 160), (16, 64))),
        ([444] * 16 + [230] * 16 + [180] * 32 + [120] * 64,
         ((16, 448), (16, 240), (32, 192), (64, 128))),
    ],
)  # fmt: skip
def test_blocks_are_as_long_as_their_largest_graph(
    lengths: list[int], blocks: tuple[tuple[int, int], ...]
) -> None:
    assert blocks_for(np.array(lengths)) == blocks
    assert do_fit(blocks, np.array(lengths))


def test_graphs_fit_in_any_order_and_with_empty_places() -> None:
    blocks = ((1, 32), (3, 16))
    for nodes, fits in (
        ([3, 32, 16, 16], True),
        ([30, 2], True),
        ([], True),
        ([17, 17], False),
        ([33], False),
        ([1, 1, 1, 1, 1], False),
    ):
        assert do_fit(blocks, np.array(nodes, int)) is fits, nodes
    assert do_fit((), np.array([5000]))


def test_usual_lengths_leave_a_margin_below_the_largest_graphs() -> None:
    most = descending(np.array([90, 100, 80]), 4)
    assert most.tolist() == [100, 90, 80, 0]
    seen = np.array([[100, 40, 20, 0], [60, 50, 10, 0]])
    assert usual_lengths(seen, most).tolist() == [100, 66, 36, 0]

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmamba.ops import pieces
from graphmamba.ops.pieces import ENTERS, HIGH, LEAVES, LOW

LENGTHS = st.lists(st.integers(0, 60), max_size=8)


@pytest.fixture(scope="module", autouse=True)
def _short_limits() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(pieces, "LIMIT", 7)
        monkeypatch.setattr(pieces, "GROUP", 20)
        yield


def cut(lengths: list[int], *, reverse: bool) -> pieces.Pieces:
    bounds = np.cumsum([0, *lengths])
    return pieces.cut(torch.from_numpy(bounds), reverse=reverse)


@given(LENGTHS, st.booleans())
def test_pieces_walk_each_sequence_from_its_start_to_its_end(
    lengths: list[int], reverse: bool
) -> None:
    walk = []
    for low, high, enters, leaves in cut(lengths, reverse=reverse).table:
        assert 0 < high - low <= pieces.LIMIT
        steps = range(low, high)
        walk.append((list(reversed(steps)) if reverse else list(steps), enters, leaves))

    for start, length in zip(np.cumsum([0, *lengths]), lengths, strict=False):
        expected = list(range(start, start + length))
        walked: list[int] = []
        handed_on = -1
        while len(walked) < length:
            steps, enters, leaves = walk.pop(0)
            assert enters == handed_on
            walked, handed_on = walked + steps, leaves
        assert handed_on == -1
        assert walked == (expected[::-1] if reverse else expected)
    assert not walk


@given(LENGTHS, st.booleans())
def test_states_at_cuts_are_numbered_and_few(lengths: list[int], reverse: bool) -> None:
    parts = cut(lengths, reverse=reverse)
    enters, leaves = parts.table[:, ENTERS], parts.table[:, LEAVES]
    assert enters[enters >= 0].tolist() == list(range(parts.cuts))
    assert leaves[leaves >= 0].tolist() == list(range(parts.cuts))
    assert parts.cuts <= pieces.most_cuts(sum(lengths))


@given(LENGTHS)
def test_groups_hold_all_pieces_and_are_no_longer_than_needed(lengths: list[int]) -> None:
    parts = cut(lengths, reverse=False)
    assert parts.groups[0] == 0
    assert parts.groups[-1] == len(parts.table)
    assert parts.group_count <= sum(lengths) // pieces.GROUP + 1
    for first, last in zip(parts.groups[:-1], parts.groups[1:], strict=True):
        steps = parts.table[first:last, HIGH] - parts.table[first:last, LOW]
        assert 0 < steps.sum() < pieces.GROUP + pieces.LIMIT

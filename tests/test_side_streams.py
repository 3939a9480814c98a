"""Branches side by side: what waits for what, and what is left behind by a mistake."""

from unittest.mock import MagicMock, patch

import pytest
import torch

from graphmamba.side_streams import Branch, join_lanes, with_side_streams


class MistakeError(Exception):
    """Happens inside of a branch."""


def test_a_branch_runs_where_the_other_does_if_there_is_no_stream() -> None:
    x = torch.randn(3)
    branch = Branch([x])
    with branch:
        y = x + 1
    branch.join(y)
    assert torch.equal(y, x + 1)


def test_both_sides_wait_and_hold_what_the_other_made() -> None:
    side, here = MagicMock(spec=torch.cuda.Stream), MagicMock(spec=torch.cuda.Stream)
    came_in, made = MagicMock(spec=torch.Tensor), MagicMock(spec=torch.Tensor)
    with (
        patch("torch.cuda.current_stream", return_value=here),
        patch("torch.cuda.stream") as enter,
        with_side_streams({"mixer": side}),
    ):
        branch = Branch([came_in])
        side.wait_stream.assert_called_once_with(here)
        came_in.record_stream.assert_called_once_with(side)
        with branch:
            enter.return_value.__enter__.assert_called_once_with()
        enter.assert_called_once_with(side)
        here.wait_stream.assert_not_called()
        branch.join(made)
        here.wait_stream.assert_called_once_with(side)
        made.record_stream.assert_called_once_with(here)


def test_a_branch_that_is_off_knows_no_streams() -> None:
    side, x = MagicMock(spec=torch.cuda.Stream), MagicMock(spec=torch.Tensor)
    with patch("torch.cuda.stream") as enter, with_side_streams({"mixer": side}):
        branch = Branch([x], is_on=False)
        with branch:
            pass
        branch.join(x)
        assert branch.leave(x) is x
        join_lanes()
    enter.assert_not_called()
    side.wait_stream.assert_not_called()
    x.record_stream.assert_not_called()


def test_what_is_left_in_a_lane_is_waited_for_at_the_end_alone() -> None:
    side, here = MagicMock(spec=torch.cuda.Stream), MagicMock(spec=torch.cuda.Stream)
    came_in, made, other = (MagicMock(spec=torch.Tensor) for _ in range(3))
    with (
        patch("torch.cuda.current_stream", return_value=here),
        patch("torch.cuda.stream"),
        with_side_streams({"mixer": MagicMock(spec=torch.cuda.Stream), "edges": side}),
    ):
        assert Branch([came_in], "edges").leave(made) is made
        side.wait_stream.assert_called_once_with(here)
        Branch([made], "edges")
        side.wait_stream.assert_called_once_with(here)
        made.record_stream.assert_not_called()
        # what another stream made is waited for, with or without what was left
        Branch([made, other], "edges")
        assert side.wait_stream.call_count == 2
        other.record_stream.assert_called_once_with(side)
        here.wait_stream.assert_not_called()
        join_lanes()
        here.wait_stream.assert_called_once_with(side)
        join_lanes()
        here.wait_stream.assert_called_once_with(side)


def test_nothing_is_left_where_there_are_no_streams() -> None:
    x = torch.ones(1)
    assert Branch([x], "edges").leave(x) is x
    join_lanes()


def test_the_stream_is_gone_behind_the_context_whatever_happens() -> None:
    side, x = MagicMock(spec=torch.cuda.Stream), torch.randn(3)
    with pytest.raises(MistakeError), with_side_streams({"mixer": side}):
        raise MistakeError
    with Branch([x]):
        pass
    side.wait_stream.assert_not_called()


def test_a_mistake_leaves_the_branch() -> None:
    with (
        patch("torch.cuda.current_stream"),
        patch("torch.cuda.stream") as enter,
        with_side_streams({"mixer": MagicMock(spec=torch.cuda.Stream)}),
    ):
        # a mock would swallow it
        enter.return_value.__exit__.return_value = False
        with pytest.raises(MistakeError), Branch([]):
            raise MistakeError
        enter.return_value.__exit__.assert_called_once()


@pytest.mark.gpu
def test_a_gpu_goes_on_with_its_own_stream_behind_a_mistake() -> None:
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.randn(1000, 1000, device="cuda")
    with with_side_streams({"mixer": side}):
        branch = Branch([x])
        with branch:
            assert torch.cuda.current_stream() == side
            y = x @ x
        assert torch.cuda.current_stream() == here
        branch.join(y)
        assert torch.equal(y, x @ x)
        with pytest.raises(MistakeError), Branch([x]):
            raise MistakeError
        assert torch.cuda.current_stream() == here

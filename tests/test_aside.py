"""Gradients of weights beside all else: who goes there, what waits, what is held."""

from unittest.mock import MagicMock, patch

import pytest
import torch
from torch import nn

from graphmamba.aside import Aside, current_aside, with_aside


def aside_of(stream: MagicMock, *weights: torch.Tensor) -> Aside:
    aside = Aside([stream])
    for each in weights:
        aside.note(each)
    return aside


def test_only_whole_weights_of_one_use_go_aside() -> None:
    once, twice, never = (nn.Parameter(torch.ones(3)) for _ in range(3))
    part = nn.Parameter(torch.ones(3))[:2]
    aside = aside_of(MagicMock(spec=torch.cuda.Stream), once, twice, twice, part)
    assert [aside.takes(each) for each in (once, twice, never, part)] == [True, False, False, False]


def test_a_weight_is_known_by_its_memory() -> None:
    # A backward pass may be given the weight without its graph; a part that begins where the whole
    # does must not be taken for it.
    whole = nn.Parameter(torch.ones(3))
    assert aside_of(MagicMock(spec=torch.cuda.Stream), whole).takes(whole.detach())
    assert not aside_of(MagicMock(spec=torch.cuda.Stream), whole[:2]).takes(whole)
    assert not aside_of(MagicMock(spec=torch.cuda.Stream), whole, whole[:2]).takes(whole)


def test_streams_take_turns_and_those_in_use_are_awaited() -> None:
    sides, here = [MagicMock(spec=torch.cuda.Stream) for _ in range(3)], MagicMock()
    with (
        patch("torch.cuda.current_stream", return_value=here),
        patch("torch.cuda.stream") as enter,
        patch("torch.cuda.Event"),
    ):
        aside = Aside(sides)
        for works in (2, 4):
            found = [torch.ones(1) for _ in range(works)]
            for each in found:
                aside.run(lambda each=each: (each,), ())
            aside.join(found)
    turns = [0, 1, 0, 1, 2, 0]
    assert [call.args[0] for call in enter.call_args_list] == [sides[turn] for turn in turns]
    awaited = [call.args[0] for call in here.wait_stream.call_args_list]
    assert awaited == [*sides[:2], *sides]


def test_work_waits_for_the_stream_and_the_stream_for_the_work() -> None:
    side, here = MagicMock(spec=torch.cuda.Stream), MagicMock(spec=torch.cuda.Stream)
    found, read = torch.ones(2), torch.ones(3)
    with (
        patch("torch.cuda.current_stream", return_value=here),
        patch("torch.cuda.stream") as enter,
        patch("torch.cuda.Event"),
    ):
        aside = Aside([side])
        assert aside.run(lambda: (found, torch.empty(0)), (read,))[0] is found
        side.wait_stream.assert_called_once_with(here)
        enter.assert_called_once_with(side)
        here.wait_stream.assert_not_called()
        assert aside._held[0].tensors[0] is read
        aside.make_room()
        assert aside._held
        here.wait_event.assert_not_called()
        aside.join([found, torch.ones(1)])
        here.wait_stream.assert_called_once_with(side)
        assert not aside._held


def test_what_is_held_is_let_go_where_memory_is_scarce() -> None:
    side, here = MagicMock(spec=torch.cuda.Stream), MagicMock(spec=torch.cuda.Stream)
    reads = [torch.ones(10) for _ in range(3)]
    events = [MagicMock(spec=torch.cuda.Event) for _ in reads]
    with (
        patch("torch.cuda.current_stream", return_value=here),
        patch("torch.cuda.stream"),
        patch("torch.cuda.Event", side_effect=events),
    ):
        aside = Aside([side], most_held=50)
        for number, each in enumerate(reads):
            aside.run(lambda: (torch.ones(1),), (each,))
            # 40 bytes may be held when the next one comes, 80 may not
            assert here.wait_event.call_count == max(number - 1, 0)
        here.wait_event.assert_called_once_with(events[0])
        aside.make_room()
        assert [held.tensors[0] for held in aside._held] == reads[2:]


def test_a_gradient_that_was_copied_is_noticed() -> None:
    found = torch.ones(2)
    with patch("torch.cuda.current_stream"), patch("torch.cuda.stream"), patch("torch.cuda.Event"):
        aside = Aside([MagicMock(spec=torch.cuda.Stream)])
        aside.run(lambda: (found,), ())
        with pytest.raises(RuntimeError, match="1 gradients were read"):
            aside.join([found.clone()])
        # and the next step begins anew
        aside.join([])


def test_there_is_none_but_in_its_context() -> None:
    aside = Aside([MagicMock(spec=torch.cuda.Stream)])
    assert current_aside() is None
    with with_aside(aside):
        assert current_aside() is aside
        with with_aside(None):
            assert current_aside() is None
    assert current_aside() is None

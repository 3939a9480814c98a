"""When a run has to stop or to save."""

import os
import signal
import threading

import pytest

from graphmamba.training.stops import Stops


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_noted_and_the_second_is_not_caught(number: int) -> None:
    caught = []
    before = signal.signal(number, lambda *_: caught.append(number))
    try:
        with Stops(60.0, 60.0) as stops:
            assert not stops.is_signalled
            os.kill(os.getpid(), number)
            assert stops.is_signalled
            assert not caught
            os.kill(os.getpid(), number)
            assert caught == [number]
    finally:
        signal.signal(number, before)


def test_handlers_are_put_back_after_a_failure() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def fail() -> None:
        with Stops(60.0, 60.0):
            assert signal.getsignal(signal.SIGTERM) != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_threads_may_train_too() -> None:
    failures: list[BaseException] = []

    def enter() -> None:
        try:
            with Stops(0.0, 60.0) as stops:
                assert stops.is_over
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert not failures


def test_the_clock_tells_when_to_save() -> None:
    always, never = Stops(60.0, 0.0), Stops(60.0, 60.0)
    always.saved()
    assert always.is_save_due
    assert not never.is_save_due
    assert not never.is_over

"""Kernels on several threads, and sums of what the steps that read a row send back to it."""

import threading
from collections.abc import Iterator

import pytest
import torch

from graphmamba.ops.cpu_arrays import share_out


@pytest.fixture(params=[1, 2, 3], ids="{} threads".format)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_every_number_is_taken_once() -> None:
    for count in (0, 1, 2, 7, 100):
        taken: list[int] = []
        share_out(lambda first, last, into: into.extend(range(first, last)), count, taken)
        assert sorted(taken) == list(range(count))


def test_as_many_threads_work_as_torch_has(threads: int) -> None:
    meeting = threading.Barrier(threads)
    # It breaks, and raises, unless that many threads come together.
    share_out(lambda _first, _last: meeting.wait(timeout=60), threads)


@pytest.mark.usefixtures("threads")
def test_an_error_reaches_the_caller() -> None:
    def fail(first: int, last: int) -> None:
        raise ArithmeticError(f"{first} to {last}")

    with pytest.raises(ArithmeticError):
        share_out(fail, 5)

"""Kernels on several threads, and sums of what the steps that read a row send back to it."""

import threading
from collections.abc import Iterator

import pytest
import torch

from graphmamba.ops.cpu_arrays import share_out, sum_by_row


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


@pytest.mark.parametrize("inner", [1, 16, 35])
def test_rows_that_are_read_several_times_get_the_sum(inner: int) -> None:
    order, values = torch.tensor([4, 0, 4, 9, 4, 2]), torch.rand(6, inner)
    expected = torch.zeros(5, inner).index_add(0, order % 5, values)
    torch.testing.assert_close(sum_by_row(values, order, 5, is_permutation=False), expected)


def test_samples_are_summed_slot_by_slot() -> None:
    order, values = torch.randperm(12), torch.rand(12, 3)
    by_slot = torch.empty_like(values).index_copy(0, order, values)
    expected = torch.zeros(4, 3).index_add(0, order % 4, values)
    torch.testing.assert_close(sum_by_row(by_slot, order, 4, is_permutation=True), expected)


@pytest.mark.parametrize("is_permutation", [False, True])
def test_rows_that_no_step_reads_get_zero(is_permutation: bool) -> None:
    order, values = torch.empty(0, dtype=torch.long), torch.empty(0, 3)
    for rows in (2, 0):
        summed = sum_by_row(values, order, rows, is_permutation=is_permutation)
        assert torch.equal(summed, torch.zeros(rows, 3))

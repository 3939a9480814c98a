"""Work on many items side by side: a quiet bar, and threads left as they were."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from graphmamba.data.parallel import run_all, track


def test_items_pass_in_order_and_nothing_is_drawn_without_a_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert list(track(iter([3, 1, 2]), "Counting", 3)) == [3, 1, 2]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("total", [3, None])
def test_a_terminal_sees_the_title(
    total: int | None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert list(track(range(3), "Counting", total)) == [0, 1, 2]
    drawn = capfd.readouterr()
    assert "Counting" in drawn.err
    assert drawn.out == ""


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As many as a worker does not have by itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_workers_do_all_items_and_leave_the_threads_as_they_were() -> None:
    done = torch.zeros(50)

    def work(item: int) -> None:
        done[item] += 1

    run_all(work, range(50), "Working")
    assert done.eq(1).all()
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_mistake_in_a_worker_is_raised_and_the_threads_are_as_before() -> None:
    def work(item: int) -> None:
        raise ZeroDivisionError(item)

    with pytest.raises(ZeroDivisionError):
        run_all(work, range(3), "Working")
    assert torch.get_num_threads() == 2


def _blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_workers_share_the_cores_and_leave_the_threads_as_they_were() -> None:
    before, seen = (_blas_threads(), torch.get_num_threads()), []

    def look(_: int) -> None:
        seen.append((_blas_threads(), torch.get_num_threads()))

    run_all(look, range(4), "looking")
    assert before[0]
    assert seen == [({1}, 1)] * 4
    assert (_blas_threads(), torch.get_num_threads()) == before

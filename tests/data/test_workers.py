"""Work on many graphs side by side."""

import torch
from threadpoolctl import threadpool_info

from graphmamba.data.workers import run_all


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

"""The learning rate over a run."""

import pytest

from graphmamba.train.schedule import warmup_cosine


@pytest.mark.parametrize(("warmup", "epochs"), [(10, 200), (5, 100), (10, 150)])
def test_published_schedule(warmup: int, epochs: int) -> None:
    factors = [warmup_cosine(epoch, warmup, epochs) for epoch in range(epochs)]
    assert factors[0] == 1e-6
    assert factors[1] == pytest.approx(1 / warmup)
    assert factors[warmup] == 1.0
    assert max(factors) == factors[warmup]
    assert 0 < factors[-1] < 1e-3
    assert factors[: warmup + 1] == sorted(factors[: warmup + 1])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)


def test_halfway_down_the_cosine_is_half() -> None:
    assert warmup_cosine(105, 10, 200) == pytest.approx(0.5)


def test_no_warmup_starts_at_the_top() -> None:
    assert warmup_cosine(0, 0, 10) == 1.0


def test_run_of_warmup_alone() -> None:
    assert [warmup_cosine(epoch, 2, 2) for epoch in range(3)] == [1e-6, 0.5, 1.0]

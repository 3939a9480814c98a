import time

import pytest
import torch

from graphmamba.bench.timing import median_ms, once_ms, peak_bytes


def test_the_median_ignores_a_slow_first_call() -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        time.sleep(0.3 if len(calls) == 1 else 0.02)

    assert 20 <= median_ms([step], torch.device("cpu")) < 200
    assert len(calls) > 3


def test_equal_steps_take_turns() -> None:
    calls: list[str] = []
    steps = [lambda: (calls.append("a"), time.sleep(0.01)), lambda: calls.append("b")]
    median_ms(steps, torch.device("cpu"))
    assert abs(calls.count("a") - calls.count("b")) <= 1


def test_once_is_one_call() -> None:
    calls: list[int] = []
    assert once_ms(lambda: (calls.append(1), time.sleep(0.01))) >= 10
    assert len(calls) == 1


@pytest.mark.gpu
def test_a_replayed_step_costs_its_kernels_alone() -> None:
    x = torch.randn(64 * 2**20, device="cuda")
    # 512 MiB moved; no GPU copies faster than 20 TB/s.
    assert 0.025 < median_ms([x.clone], torch.device("cuda")) < 10


@pytest.mark.gpu
def test_autograd_can_be_captured() -> None:
    x = torch.randn(1000, device="cuda", requires_grad=True)
    grad = torch.ones_like(x)
    assert median_ms([lambda: torch.autograd.grad(x.exp(), x, grad)], torch.device("cuda")) > 0


@pytest.mark.gpu
def test_the_peak_is_counted_beyond_what_was_there() -> None:
    x = torch.zeros(2**20, device="cuda")
    assert peak_bytes(lambda: (x + 1) + 1) == 2 * x.nbytes

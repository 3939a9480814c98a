import pytest
import torch

from graphmamba.bench.timing import median_ms, once_ms, peak_bytes

CPU = torch.device("cpu")


class Clock:
    """Time that passes only in steps that say so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("graphmamba.bench.timing.time.perf_counter", lambda: clock.seconds)
    return clock


def test_the_median_ignores_slow_calls(clock: Clock) -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        clock.sleep(3.0 if len(calls) in {1, 5} else 1 / 64)

    assert median_ms([step], CPU) == 1e3 / 64
    # half a second of calls, and one to warm up
    assert len(calls) == 1 + 32


def test_equal_steps_take_turns(clock: Clock) -> None:
    calls: list[str] = []
    steps = [lambda: (calls.append("a"), clock.sleep(0.01)), lambda: calls.append("b")]
    median_ms(steps, CPU)
    assert len(calls) > 10
    assert abs(calls.count("a") - calls.count("b")) <= 1


def test_once_is_one_call(clock: Clock) -> None:
    calls: list[int] = []
    assert once_ms(lambda: (calls.append(1), clock.sleep(0.01))) == pytest.approx(10)
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

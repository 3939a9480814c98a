"""The peak of live tensors, and the cap on it."""

import pytest
import torch

from graphmamba.studies import memory
from graphmamba.studies.memory import (
    HeldMemoryError,
    LiveStorage,
    OverCapError,
    capped,
    parse_bytes,
    peak_bytes,
    release,
    released_bytes,
)

CPU = torch.device("cpu")
ROWS = torch.ones(1000, 250)
MB = ROWS.nbytes


def test_what_dies_is_not_counted_twice() -> None:
    assert peak_bytes(lambda: ((ROWS * 2) + 1) * 3, CPU) == 2 * MB
    kept: list[torch.Tensor] = []
    assert peak_bytes(lambda: kept.extend(ROWS * i for i in range(4)), CPU) == 4 * MB
    assert peak_bytes(lambda: ROWS.view(-1)[10:].reshape(-1, 1), CPU, [ROWS, ROWS.T]) == MB


def test_the_backward_pass_counts() -> None:
    leaf = ROWS.clone().requires_grad_()
    forward = peak_bytes(lambda: leaf.exp().sum(), CPU, [leaf])
    both = peak_bytes(lambda: leaf.exp().sum().backward(), CPU, [leaf])
    assert (forward // MB, both // MB) == (2, 3)
    layer = torch.nn.Linear(250, 250)
    peaks = {peak_bytes(lambda: layer(ROWS).relu().sum().backward(), CPU) for _ in range(3)}
    assert len(peaks) == 1


def test_a_step_over_the_cap_is_stopped() -> None:
    assert peak_bytes(lambda: ROWS * 2, CPU, cap=MB) == MB
    with pytest.raises(OverCapError, match="2,000,000 bytes are more than the cap of 1,500,000"):
        peak_bytes(lambda: ROWS * 2 + ROWS.exp(), CPU, cap=3 * MB // 2)


def test_nothing_is_left_when_all_tensors_are_gone() -> None:
    with LiveStorage() as live:
        made = ROWS * 2
        assert live.now == MB
        del made
    release(CPU)
    assert (live.now, live.peak) == (0, MB)


def test_a_backward_pass_that_broke_off_is_let_go() -> None:
    first, second = ROWS.clone().requires_grad_(), ROWS.clone().requires_grad_()
    live = LiveStorage()

    def reject(_: torch.Tensor) -> None:
        raise OverCapError

    with live:
        kept, broken = first.exp(), second.exp()
        broken.register_hook(reject)
        # the later one goes first and breaks the pass off; the other one is left to be done
        total = (kept + broken).sum()
        with pytest.raises(OverCapError):
            total.backward()
    del kept, broken, total
    release(CPU)
    assert live.now == 0


@pytest.mark.gpu
def test_memory_that_others_hold_is_rejected_on_a_gpu() -> None:
    held = torch.empty(memory.MOST_HELD + 1, dtype=torch.uint8, device="cuda")
    with pytest.raises(HeldMemoryError, match=r"bytes are held on cuda(:0)? before"):
        released_bytes(held.device)
    del held
    released_bytes(torch.device("cuda"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("24GB", 24 * 10**9), ("1.5 mib", 3 * 2**19), ("10kb", 10_000), ("2GiB", 2**31)],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert parse_bytes("memory_cap", text) == expected


@pytest.mark.parametrize("text", ["24", "GB", "-1GB", "0GB", "24 XB", ""])
def test_other_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="memory_cap must be a size such as 24GB"):
        parse_bytes("memory_cap", text)


@pytest.mark.gpu
def test_a_gpu_rejects_more_than_the_cap() -> None:
    device = torch.device("cuda")
    release(device)
    with capped(device, 2**30), pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**31, device=device)
    assert torch.empty(2**31, dtype=torch.uint8, device=device).nbytes == 2**31


@pytest.mark.gpu
def test_a_gpu_knows_its_own_peak_whatever_else_it_holds() -> None:
    rows = torch.ones(1000, 250, device="cuda")
    peak = peak_bytes(lambda: rows.exp().sum(), rows.device, [rows, rows.T])
    assert 2 * MB <= peak < 3 * MB
    others = torch.empty(100 * MB, dtype=torch.uint8, device="cuda")
    assert peak_bytes(lambda: rows.exp().sum(), rows.device, [rows]) == pytest.approx(peak, rel=0.1)
    del others

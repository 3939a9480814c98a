"""`graphmamba bench scan`: errors and times of the backends."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphmamba import bench
from graphmamba import ops as scan
from graphmamba.bench import (
    BATCHES,
    Agreement,
    BatchShape,
    bench_scan,
    check_backends,
    median_ms,
    peak_bytes,
    random_lengths,
)

CPU = torch.device("cpu")
FAST = [name for name in scan.available_backends(CPU) if name != "reference"]
SMALL = replace(BATCHES["peptides"], sequences=3, tokens=60, longest=40)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BATCHES:
        monkeypatch.setitem(BATCHES, name, replace(SMALL, name=name))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_backend_is_as_accurate_as_the_reference(device: str) -> None:
    agreements = check_backends(torch.device(device))
    fast = {name for name in scan.available_backends(torch.device(device)) if name != "reference"}
    operations = ("causal_conv1d", "selective_scan")
    found = {(one.operation, one.backend) for one in agreements}
    assert found == {(operation, backend) for operation in operations for backend in fast}
    assert all(one.holds for one in agreements), agreements


def with_gradient_times(factor: float) -> Callable[[Tensor], Tensor]:
    """Multiply the gradient, not the value."""
    return lambda x: factor * x + (1 - factor) * x.detach()


@pytest.mark.parametrize(
    ("change", "argument", "worst"),
    [
        (lambda x: x * (1 + 1e-3), "u", None),
        (with_gradient_times(1.001), "B", "B"),
        (with_gradient_times(torch.nan), "D", "out"),
    ],
    ids=["value", "gradient", "nan"],
)
def test_a_wrong_backend_is_found(
    change: Callable[[Tensor], Tensor],
    argument: str,
    worst: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, conv = scan.selective_scan, scan.causal_conv1d

    def wrong(*, backend: str, **arguments: Tensor) -> Tensor:
        if backend == "cpu":
            arguments[argument] = change(arguments[argument])
        return right(backend="reference", **arguments)

    monkeypatch.setattr(bench.ops, "selective_scan", wrong)
    monkeypatch.setattr(
        scan, "causal_conv1d", lambda **arguments: conv(**{**arguments, "backend": "reference"})
    )
    monkeypatch.setattr(bench.ops, "available_backends", lambda _: ("reference", "cpu"))
    untouched, found = check_backends(CPU)
    assert untouched.holds
    assert not found.holds
    assert worst in {None, found.worst}


@pytest.mark.usefixtures("small_batches")
def test_the_command_prints_tables_and_writes_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scan.json"
    bench_scan(device="cpu", sizes="peptides, voc", json=file)
    written = json.loads(file.read_text())
    found = {(one["batch"]["name"], one["backend"]) for one in written["times"]}
    assert found == {(name, way) for name in ("peptides", "voc") for way in FAST}
    assert {one["backend"] for one in written["agreement"]} == set(FAST)
    assert written["environment"]["torch"] == torch.__version__
    shown = capsys.readouterr().out
    for one in written["times"]:
        assert f"{one['both_ms']:.3f}" in shown
        assert 0 < one["forward_ms"] < one["both_ms"]
        assert one["peak_bytes"] is None


@pytest.mark.usefixtures("small_batches")
def test_a_wrong_backend_gives_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Agreement("selective_scan", "cpu", "out", error=1.0, allowed=1e-6)
    monkeypatch.setattr(bench, "check_backends", lambda _: [wrong])
    with pytest.raises(SystemExit) as stopped:
        bench_scan(device="cpu")
    assert stopped.value.code == 1
    assert "WRONG" in capsys.readouterr().out
    assert not replace(wrong, error=float("nan")).holds


@pytest.mark.parametrize("shape", [*BATCHES.values(), BatchShape("tight", 4, 39, 10, 1)], ids=str)
def test_lengths_add_up_exactly(shape: BatchShape) -> None:
    lengths = random_lengths(shape)
    assert (len(lengths), sum(lengths)) == (shape.sequences, shape.tokens)
    assert 1 <= min(lengths) <= max(lengths) == shape.longest


def test_the_median_ignores_slow_calls_and_steps_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    seconds = 0.0

    def call(name: str) -> None:
        nonlocal seconds
        calls.append(name)
        seconds += 3.0 if len(calls) in {1, 4} else 1 / 64

    monkeypatch.setattr(bench.time, "perf_counter", lambda: seconds)
    assert median_ms([lambda: call("a"), lambda: call("b")], CPU) == 1e3 / 64
    assert len(calls) == 2 + 3  # both to warm up
    assert abs(calls.count("a") - calls.count("b")) == 1


@pytest.mark.gpu
@pytest.mark.usefixtures("small_batches")
def test_every_size_is_timed_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    bench_scan(device="cuda")
    shown = capsys.readouterr().out
    assert all(name in shown for name in BATCHES)


@pytest.mark.gpu
def test_the_peak_does_not_count_what_was_allocated_before() -> None:
    x = torch.zeros(2**20, device="cuda")
    assert peak_bytes(lambda: (x + 1) + 1) == 2 * x.nbytes

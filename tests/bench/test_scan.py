import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphmamba.bench import scan as command
from graphmamba.bench.agreement import Agreement
from graphmamba.bench.measure import measure_padded_loop, measure_scan
from graphmamba.bench.shapes import BATCHES
from graphmamba.scan import available_backends

SMALL = replace(BATCHES["peptides"], sequences=3, tokens=60, longest=40)
FAST = [name for name in available_backends(torch.device("cpu")) if name != "reference"]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BATCHES:
        monkeypatch.setitem(BATCHES, name, replace(SMALL, name=name))


@pytest.mark.usefixtures("small_batches")
def test_it_prints_tables_and_writes_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scan.json"
    command.bench_scan(device="cpu", sizes="peptides, voc", json=file)
    written = json.loads(file.read_text())
    rows = {(one["batch"]["name"], one["backend"]) for one in written["times"]}
    assert rows == {(name, way) for name in ("peptides", "voc") for way in (*FAST, "padded loop")}
    assert {one["backend"] for one in written["agreement"]} == set(FAST)
    assert written["environment"]["torch"] == torch.__version__

    shown = capsys.readouterr().out
    for one in written["times"]:
        assert f"{one['both_ms']:.1f}" in shown


@pytest.mark.usefixtures("small_batches")
def test_a_backend_that_is_wrong_gives_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Agreement("selective_scan", "cpu", "out", error=1.0, allowed=1e-6)
    monkeypatch.setattr(command, "check_backends", lambda _: [wrong])
    with pytest.raises(SystemExit) as stopped:
        command.bench_scan(device="cpu")
    assert stopped.value.code == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize("backend", FAST)
def test_both_passes_take_longer_than_one(backend: str) -> None:
    times = measure_scan(BATCHES["voc"], backend, torch.device("cpu"))
    assert 0 < times.forward_ms < times.both_ms
    assert times.peak_bytes is None


def test_the_padded_loop_is_timed_under_its_name() -> None:
    times = measure_padded_loop(SMALL)
    assert times.backend == "padded loop"
    assert times.both_ns_per_token == pytest.approx(1e6 * times.both_ms / 60)
    assert times.times_bound[0] > 1


@pytest.mark.gpu
@pytest.mark.usefixtures("small_batches")
def test_every_size_is_timed_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    command.bench_scan(device="cuda")
    shown = capsys.readouterr().out
    assert all(name in shown for name in BATCHES)

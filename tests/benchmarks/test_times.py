"""Scripts that measure times, on batches small enough for a test."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphmamba.bench import BATCHES, BatchShape
from tests.helpers.processes import ROOT
from tests.helpers.scripts import load_script, run_script
from tests.helpers.typecheck import typecheck_off

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
STEP_RECORD = ROOT / "benchmarks" / "results" / "step_h200.json"


@pytest.mark.parametrize("device", DEVICES)
def test_the_scan_is_measured_on_every_batch(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script("scan", monkeypatch)
    for kind in ("one sequence", "many sequences"):
        tokens = [shape.tokens for shape in script.GROWTH if shape.name == kind]
        assert tokens == [10_000, 100_000, 1_000_000]
    small = BatchShape("small", sequences=3, tokens=60, longest=40, inner=8)
    for name in BATCHES:
        monkeypatch.setitem(BATCHES, name, replace(small, name=name))
    monkeypatch.setattr(script, "GROWTH", [small])
    written = run_script(script, monkeypatch, tmp_path / "new" / "scan.json", "--device", device)
    assert {one["batch"]["name"] for one in written["times"]} == set(BATCHES)
    assert written["growth"]
    assert set(script.MAMBA_SSM_MS) == set(BATCHES)


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_step_is_timed_as_it_is_and_in_plain_pytorch(
    is_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script("step", monkeypatch)
    shape = script.StepShape("cifar10", spread=0.05, longest=8, batches=2)
    with typecheck_off():
        times = script.measure_plain(shape, torch.device("cpu"), 2, is_reference=is_reference)
    assert (times.benchmark, times.graphs, times.nodes) == ("cifar10", 2, 16)
    assert times.kind == ("reference" if is_reference else "launched")
    assert times.train_ms > 0
    assert (times.evaluate_ms is None) == is_reference


def test_the_plot_of_a_step_and_the_page_show_what_the_record_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib")
    record = json.loads(STEP_RECORD.read_text())
    captured = [one["train_ms"] for one in record["times"] if one["kind"] == "captured"]
    panel = load_script("step_plot", monkeypatch).draw(record).axes[0]
    assert [bar.get_height() for bar in panel.patches] == pytest.approx(captured)
    # drawn by benchmarks/step_plot.py --out docs/step
    shown = (ROOT / "docs" / "step.svg").read_text()
    assert all(f"<!-- {each:.2f} -->" in shown for each in captured)

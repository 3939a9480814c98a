import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from graphmamba.stack import edge_update
from tests.helpers.processes import ROOT
from tests.helpers.scripts import load_script


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_way_is_measured_and_none_is_left_in_place(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    study = load_script("edge_update", monkeypatch)
    small = {"graphs": 2, "nodes": 20, "edges": 60, "channels": 8}
    study.BATCHES = {"pattern": replace(study.BATCHES["pattern"], **small)}
    out, before = tmp_path / "edges.json", (edge_update._is_joint, edge_update.ARE_EDGES_MAPPED)
    words = ["edge_update.py", "--device", device, "--out", str(out), "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr("graphmamba.bench.timing.BUDGET_S", 0.01)
    study.main()
    measured = json.loads(out.read_text())["times"]
    assert [one["way"] for one in measured] == ["apart", "joint", "mapped"]
    assert before == (edge_update._is_joint, edge_update.ARE_EDGES_MAPPED)

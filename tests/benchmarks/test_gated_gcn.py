import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.helpers.processes import ROOT, needs_triton
from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on batches small enough for a test."""
    module = load_script("gated_gcn", monkeypatch)
    module.BATCHES = {
        name: replace(batch, graphs=2, nodes=20, edges=60, channels=8, hub=min(batch.hub, 9))
        for name, batch in module.BATCHES.items()
    }
    return module


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_batch_is_measured(
    device: str, study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "gated.json"
    words = ["gated_gcn.py", "--device", device, "--out", str(out), "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr("graphmamba.bench.timing.BUDGET_S", 0.01)
    study.main()
    written = json.loads(out.read_text())
    measured = {(one["batch"]["name"], one["backend"]) for one in written["times"]}
    fast = "cpu" if device == "cpu" else "fused"
    assert measured == {(name, one) for name in study.BATCHES for one in ("reference", fast)}
    assert written["environment"]["commit"] == "0123abc"


def test_edges_are_sorted_and_stay_in_their_graph(study: ModuleType) -> None:
    batch = study.BATCHES["malnet16"]
    inputs = study.draw(batch, torch.device("cpu"))
    source, target = inputs.layout.edge_index
    assert torch.equal(target, target.sort().values)
    assert torch.equal(source // 10, target // 10)
    hub, others = (target % 10 == 0).sum(), (target % 10 != 0).sum()
    assert 9 <= hub < others


@needs_triton
def test_no_tile_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tiles = load_script("gated_gcn_tuning", monkeypatch).TILES
    assert len(set(tiles)) == len(tiles)

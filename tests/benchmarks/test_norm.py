import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on batches small enough for a test."""
    module = load_script("norm", monkeypatch)
    module.PLACES = {
        name: replace(place, rows=40, channels=8) for name, place in module.PLACES.items()
    }
    return module


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_place_is_measured(
    device: str, study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "norm.json"
    words = ["norm.py", "--device", device, "--out", str(out), "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr("graphmamba.bench.timing.BUDGET_S", 0.01)
    study.main()
    written = json.loads(out.read_text())
    measured = {(one["place"]["name"], one["way"]) for one in written["times"]}
    assert measured == {(name, way) for name in study.PLACES for way in study.WAYS}
    assert written["environment"]["commit"] == "0123abc"


def test_both_ways_compute_the_same(study: ModuleType) -> None:
    for place in study.PLACES.values():
        if place.rate or place.ghosts:
            continue
        inputs = study.draw(place, torch.device("cpu"))
        found = [call(kind(8), place, inputs) for kind, call in study.WAYS.values()]
        assert torch.allclose(*found, atol=1e-6)

"""Weights are scored again as they were scored before, and a difference is told."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from graphmamba.config import load_experiment
from graphmamba.errors import UserError
from graphmamba.train.evaluate import evaluate
from graphmamba.train.open_data import open_data
from graphmamba.train.weights import save_weights
from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("scores", monkeypatch)


def save(folder: Path, changed: float = 0.0, has_scores: bool = True) -> Path:
    """Write weights of a small untrained model with its scores, or others."""
    small = {"sizes": [2, 2, 3], "model.channels": 24, "model.layers": 1}
    torch.manual_seed(0)
    experiment, store = open_data(load_experiment("pattern/default", small), folder / "root")
    model = experiment.build()
    scores = {split: evaluate(model, store, split) for split in ("test", "validation")}
    scores["test"]["accuracy_sbm"] += changed
    path = folder / "pattern" / "graph-mamba" / "best.safetensors"
    path.parent.mkdir(parents=True)
    save_weights(path, model, experiment, **({"scores": scores} if has_scores else {}))
    return path


def run(study: ModuleType, monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    root = weights.parents[2]
    words = ["--root", str(root / "root"), "--device", "cpu", "--commit", "0123abc"]
    out = ["--out", str(root / "new" / "scores.json")]
    monkeypatch.setattr(sys, "argv", ["scores.py", str(weights), *words, *out])
    study.main()


def test_the_same_code_finds_the_same_scores(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(study, monkeypatch, save(tmp_path))
    written = json.loads((tmp_path / "new" / "scores.json").read_text())
    assert [(row["weights"], row["split"], row["is_same"]) for row in written["rows"]] == [
        ("pattern/graph-mamba", "test", True),
        ("pattern/graph-mamba", "validation", True),
    ]
    assert written["environment"]["commit"] == "0123abc"


def test_another_score_is_told_and_written(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="1"):
        run(study, monkeypatch, save(tmp_path, changed=0.25))
    first, second = json.loads((tmp_path / "new" / "scores.json").read_text())["rows"]
    assert (first["is_same"], second["is_same"]) == (False, True)
    assert first["reported"]["accuracy_sbm"] - first["now"]["accuracy_sbm"] == pytest.approx(0.25)


def test_weights_without_scores_are_refused(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="weights must report their scores, got"):
        run(study, monkeypatch, save(tmp_path, has_scores=False))

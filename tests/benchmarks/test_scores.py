"""Scoring weights again."""

import json
from pathlib import Path

import pytest
import torch

from graphmamba.training.checkpoint import save_weights
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import load_experiment
from graphmamba.training.graphs import open_data
from tests.helpers.scripts import load_script, run_script

SMALL = {"model.channels": 24, "model.layers": 1, "split_sizes": [2, 2, 3]}


def test_a_score_that_differs_from_the_reported_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, store = open_data(load_experiment("pattern/default", SMALL), tmp_path / "root")
    torch.manual_seed(0)
    model = experiment.build()
    scores = {split: evaluate(model, store, split) for split in ("test", "validation")}
    scores["test"]["accuracy_sbm"] += 0.25
    weights = tmp_path / "pattern" / "graph-mamba" / "best.safetensors"
    save_weights(weights, model, experiment, scores=scores)
    script, out = load_script("scores", monkeypatch), tmp_path / "scores.json"
    with pytest.raises(SystemExit, match="1"):
        run_script(script, monkeypatch, out, weights, "--data_dir", tmp_path / "root")
    rows = json.loads(out.read_text())["rows"]
    found = [(row["weights"], row["split"], row["is_same"]) for row in rows]
    name = "pattern/graph-mamba"
    assert found == [(name, "test", False), (name, "validation", True)]

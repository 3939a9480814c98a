import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from graphmamba.config import load_experiment
from graphmamba.data.datasets.sbm import generate_cluster
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.train.evaluate import evaluate
from graphmamba.train.trained import load, with_read_columns
from graphmamba.train.weights import save_weights
from tests.helpers.scripts import load_script

SMALL = {"model.channels": 24, "model.layers": 1}
SCORES = {"test": {"accuracy_sbm": 0.5}}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("draws", monkeypatch)


def save(folder: Path, benchmark: str = "cluster") -> Path:
    """Write weights of an untrained small model."""
    torch.manual_seed(0)
    experiment = load_experiment(benchmark, SMALL)
    save_weights(folder / "best.safetensors", experiment.build(), experiment, scores=SCORES)
    return folder / "best.safetensors"


def run(study: ModuleType, monkeypatch: pytest.MonkeyPatch, weights: Path, *words: str) -> dict:
    out = weights.parent / "new" / "draws.json"
    few = ["--graphs", "6", "--commit", "0123abc", "--out", str(out), *words]
    monkeypatch.setattr(sys, "argv", ["draws.py", "--weights", str(weights), *few])
    study.main()
    return json.loads(out.read_text())


def test_every_set_is_a_draw_of_its_own_seed(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = save(tmp_path)
    written = run(study, monkeypatch, weights, "--sets", "3", "--first", "4")
    assert [one["seed"] for one in written["sets"]] == [4, 5, 6]
    model = load(weights).model
    store = with_read_columns(GraphStore(generate_cluster((0, 0, 6), seed=5)), model)
    assert written["sets"][1]["nodes_a_graph"] == int(store.tables["nodes"].ptr[-1]) / 6
    assert written["sets"][1]["accuracy_sbm"] == evaluate(model, store, "test")["accuracy_sbm"]
    assert written["scores_of_the_run"] == SCORES
    assert written["environment"]["commit"] == "0123abc"


def test_spread_is_that_of_the_sets(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run(study, monkeypatch, save(tmp_path), "--sets", "2")
    low, high = sorted(one["accuracy_sbm"] for one in written["sets"])
    assert low < high
    assert (written["least"], written["most"]) == (low, high)
    assert written["mean"] == pytest.approx((low + high) / 2)
    assert written["standard_deviation"] == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
    ("benchmark", "words", "message"),
    [
        ("cluster", ["--first", "0"], "--first must be at least 1, got 0"),
        ("cluster", ["--sets", "0"], "--sets must be at least 1, got 0"),
        ("pattern", [], "benchmark of the weights must be one of 'cluster', got 'pattern'"),
    ],
)
def test_graphs_of_training_and_other_models_are_refused(
    benchmark: str,
    words: list[str],
    message: str,
    study: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match=message):
        run(study, monkeypatch, save(tmp_path, benchmark), *words)

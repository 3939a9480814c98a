"""Recipes on a part of a set: the same graphs for all, and a record after each."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from graphmamba.data.datasets.sources import open_benchmark
from tests.helpers.scripts import load_script

SIZES = (12, 6, 4)


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("pilot", monkeypatch)


def test_a_part_is_drawn_by_its_seed(study: ModuleType, tmp_path: Path) -> None:
    store = open_benchmark("pattern", tmp_path, sizes=SIZES)
    parts = [study.some_of(store, (5, 3), seed) for seed in (0, 0, 1)]
    for part in parts:
        assert [len(part.split_ids(name)) for name in study.SPLITS] == [5, 3, 1]
        for name in study.SPLITS:
            assert set(part.split_ids(name).tolist()) <= set(store.split_ids(name).tolist())
    assert torch.equal(parts[0].split, parts[1].split)
    assert not torch.equal(parts[0].split, parts[2].split)


def test_recipes_are_trained_and_recorded(
    study: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = {
        "sizes": list(SIZES),
        "model.channels": 8,
        "model.layers": 1,
        "recipe.epochs": 2,
        "recipe.batch_size": 4,
    }
    lines = [
        {"label": "one", "name": "pattern/default", "overrides": small},
        {"label": "other", "name": "pattern/default", "overrides": small | {"model.layers": 2}},
    ]
    listed, out = tmp_path / "list.jsonl", tmp_path / "new" / "pilot.json"
    listed.write_text("\n\n".join(map(json.dumps, lines)))
    words = ["--train", "8", "--validation", "4", "--root", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["pilot.py", str(listed), *words, "--device", "cpu"])
    study.main()
    written = json.loads(out.read_text())
    assert written["graphs"] == [8, 4]
    one, other = written["rows"]
    assert (one["label"], one["overrides"]) == ("one", small)
    assert one["parameters"] < other["parameters"]
    for row in (one, other):
        assert len(row["train_loss"]) == len(row["validation"]) == 2
    assert one["train_loss"] != other["train_loss"]
    assert "other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("metric", "best"), [("mean_absolute_error", "0.1250"), ("accuracy_sbm", "0.5000")]
)
def test_the_table_shows_the_best_epoch(study: ModuleType, metric: str, best: str) -> None:
    row = {
        "label": "one",
        "parameters": 1234,
        "metric": metric,
        "train_loss": [1.0, 0.5],
        "validation": [0.25, 0.125, 0.5],
    }
    assert study._texts(row) == ["one", "1,234", "1.0000", "0.5000", best]

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
from graphmamba.train.trained import with_read_columns
from tests.helpers.scripts import load_script

SMALL = {"model.channels": 24, "model.layers": 2}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("growth", monkeypatch)


def run(study: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> dict:
    few = ["--batches", "1", "--graphs", "3", "--layers", "2", "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", ["growth.py", *few, "--out", str(out), *words])
    study.main()
    return json.loads(out.read_text())


def test_every_layer_is_followed(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run(study, monkeypatch, tmp_path / "new" / "growth.json")
    assert written["asked"] == {"batches": 1, "graphs": 3, "seed": 0}
    assert [set(line) for line in written["layers"]] == [{"mixer", "rows"}] * 2
    assert all(value > 0 for line in written["layers"] for value in line.values())
    # sixteen graphs moved the statistics, and came before these
    assert written["graph"] in range(16, 19)
    assert written["without_a_number"] == 0
    assert written["environment"]["commit"] == "0123abc"


def test_weights_are_those_that_a_run_begins_with(study: ModuleType) -> None:
    first, other, again = (study.measure(SMALL, 1, 2, seed) for seed in (0, 1, 0))
    assert first == again
    assert first["layers"] != other["layers"]


def test_graphs_without_a_number_are_counted(study: ModuleType) -> None:
    model = load_experiment("cluster", SMALL).build(0).eval()
    store = with_read_columns(GraphStore(generate_cluster((0, 3, 0), 1)), model)
    nodes = store.tables["nodes"]
    x = nodes.given("x").clone()
    x[int(nodes.ptr[1])] = torch.nan
    found = study.largest_of_each(model, store.with_columns(nodes={"x": x}), torch.arange(3))
    assert found.isfinite().tolist() == [True, False, True]


def test_float64_follows_the_same_model(study: ModuleType) -> None:
    experiment = load_experiment("cluster", SMALL)
    model = experiment.build(0).eval()
    store = with_read_columns(GraphStore(generate_cluster((0, 2, 0), 1)), model)
    *_, last = study.growth_of(experiment, model, store, 1)
    with torch.no_grad():
        alone = study.largest_of_each(model, store, torch.tensor([1]))
    assert last["rows"] == pytest.approx(float(alone[0]), rel=1e-4)


def test_graphs_have_to_be_asked_for(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="--batches must be at least 1, got 0"):
        run(study, monkeypatch, tmp_path / "growth.json", "--batches", "0")

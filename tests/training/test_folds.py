"""Cross-validation: a run for each fold, a table of all, predictions by models that did not see."""

import csv
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import torch

import graphmamba
from graphmamba.data.custom import DataOptions
from graphmamba.data.custom.options import DataSource
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, RunOptions, experiment_of
from graphmamba.training.fit import _folds_of, fit_folds, fit_seeds
from graphmamba.training.progress import EpochRecord, Reporter, StartRecord
from graphmamba.training.run_dir import FoldsResult, read_config
from tests.helpers.own_files import write_rings

SMALL = {"model.channels": 8, "model.layers": 1, "train.epochs": 2, "optim.warmup": 0}


def own_experiment(folder: Path) -> Experiment:
    data = DataSource(target="taste", undirected=True, path=str(folder))
    return replace(experiment_of(SMALL), data=data)


class Stopping(Reporter):
    """Ends the second run after its first epoch, as a system does that is shut down."""

    def __init__(self) -> None:
        self.runs = 0

    def on_start(self, start: StartRecord) -> None:  # noqa: ARG002
        self.runs += 1

    def on_epoch(self, record: EpochRecord) -> None:  # noqa: ARG002
        if self.runs == 2:
            os.kill(os.getpid(), signal.SIGTERM)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_folds_are_trained_resumed_and_predicted(tmp_path: Path) -> None:
    experiment = own_experiment(write_rings(tmp_path / "rings", graphs=12))
    run, sets = tmp_path / "run", tmp_path / "sets"

    def fit(resume: bool, reporter: Reporter | None = None) -> FoldsResult:
        return fit_folds(experiment, None, None, run, reporter, resume, folds=3, data_dir=sets)

    stopped = fit(False, Stopping())
    assert [each.stop_reason for each in stopped.runs] == ["finished", "signal"]
    first = (run / "fold-0" / "results.json").read_text()
    assert not stopped.predictions.exists()
    with pytest.raises(UserError, match=r"hold a series of seeds .* holds 3 folds"):
        fit_seeds(experiment, None, RunOptions(), run, resume=True, seeds=[0])
    result = fit(True)
    assert [each.is_done for each in result.runs] == [True] * 3
    assert fit(True).mean("test", "accuracy") == result.mean("test", "accuracy")
    assert (run / "fold-0" / "results.json").read_text() == first

    assert read_config(run).folds == 3
    table = json.loads((run / "results.json").read_text())
    assert table["folds"] == 3
    tests = [each.test for each in result.runs]
    assert table["scores"]["test"]["accuracy"]["mean"] == pytest.approx(sum(tests) / 3)
    rows = read(result.predictions)
    assert [row["graph"] for row in rows] == [f"g{number}" for number in range(12)]
    for fold, each in enumerate(result.runs):
        tested = [(n, row) for n, row in enumerate(rows) if row["fold"] == str(fold)]
        assert [n % 2 for n, _ in tested].count(0) == 2
        right = [row["class"] == ("sour" if n % 2 else "sweet") for n, row in tested]
        assert sum(right) / 4 == pytest.approx(each.test)
    assert graphmamba.load(run).names == ("sour", "sweet")


def test_graphs_of_networkx_are_cross_validated(tmp_path: Path) -> None:
    graphs = []
    for number in range(8):
        graph = nx.cycle_graph(4) if number % 2 else nx.path_graph(3 + number % 3)
        nx.set_node_attributes(graph, {node: "ab"[node % 2] for node in graph}, "colour")
        graph.graph["kind"] = "ring" if number % 2 else "line"
        graphs.append(graph)
    data = DataOptions(target="kind")
    opened = _folds_of(None, graphs, data, 2, "tiny", None)
    assert opened(0)[0].model == opened(1)[0].model
    assert opened(1)[0].chosen.startswith("defaults: separate graphs")
    result = fit_folds(experiment_of(SMALL), graphs, run_dir=tmp_path / "run", folds=2, data=data)
    rows = read(result.predictions)
    assert [row["graph"] for row in rows] == list("01234567")
    assert {row["class"] for row in rows} <= {"line", "ring"}
    found = graphmamba.load(tmp_path / "run").predict(graphs)
    assert found.names == ("line", "ring")
    assert found.outputs.shape == torch.Size([8, 2])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"experiment": "pattern"}, "folds must be left out for pattern, whose split is published"),
        ({"experiment": "pattern", "folds": 1}, "folds must be 2 at least, got 1"),
    ],
)
def test_folds_of_what_has_none_are_rejected(given: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        fit_folds(**given)  # type: ignore[arg-type]

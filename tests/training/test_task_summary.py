"""What a run on custom graphs says before it begins, and in which units it learns and reports."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score
from torch_geometric.data import Data

from graphmamba.data.custom.options import DataOptions
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import take_graphs
from graphmamba.training.predict import load, scorer_of
from graphmamba.training.run_dir import read_config, read_rows
from graphmamba.training.task_summary import understood
from tests.helpers.runs import tiny_experiment

SPLITS = ("train", "train", "train", "validation", "test")


def graphs(labels: list[object], nodes: int = 3) -> list[Data]:
    """A path for each label, whose only feature grows from graph to graph."""
    edges = torch.tensor([[*range(nodes - 1)], [*range(1, nodes)]])
    return [
        Data(
            x=torch.full((nodes, 1), number / 10),
            edge_index=edges,
            y=torch.tensor(label),
            split=SPLITS[number % len(SPLITS)],
        )
        for number, label in enumerate(labels)
    ]


def small(**overrides: object) -> Experiment:
    entries = {"model.channels": 24, "model.layers": 1, "train.epochs": 2, "optim.warmup": 0}
    return load_experiment("mnist", {**entries, "encoder.laplacian": None, **overrides})


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            [1, -1, 1, 1, -1] * 2,
            ["task: graph classification, 2 classes (-1 4, 1 6), metric accuracy, 6/2/2 graphs"],
        ),
        (
            [[0, 2, -1], [1, 1, 2]] * 5,
            [
                "task: node classification, 3 classes (0 5, 1 10, 2 10), metric accuracy, "
                "15/5/5 nodes, 5 without label"
            ],
        ),
        (
            [0, 1, 0, 3, 4] * 2,
            [
                "task: graph classification, 5 classes (0 4, 1 2, 2 0, 3 2, 4 2), metric accuracy, "
                "6/2/2 graphs",
                "note: 3 of 5 classes have no label in training: 2, 3, 4",
            ],
        ),
        (
            [[[1.0, math.nan]], [[0.0, 1.0]]] * 5,
            [
                "task: graph multi-label classification, 2 labels (y0 5 of 10, y1 5 of 5), "
                "metric AP, 6/2/2 graphs"
            ],
        ),
        (
            [*range(21)] * 5,
            [
                "task: graph classification, 21 classes (0 5, 1 5, 2 5, 3 5, 4 5, 5 5, 6 5, 7 5, "
                "...), metric accuracy, 63/21/21 graphs",
                "note: 21 different whole numbers are read as classes; --data.task regression "
                "reads them as targets",
            ],
        ),
        (
            [200, 100, 300, 600, 500, 700, 900, 800, 400, 1000],
            [
                "task: graph regression, 1 target (y0 550 ± 287.2), metric MAE, 6/2/2 graphs",
                "note: 10 different whole numbers, most of which occur once or leave many out, are "
                "read as targets; --data.task classes reads them as classes",
            ],
        ),
        (
            [number / 10 for number in range(10)],
            [
                "task: graph regression, 1 target (y0 0.45 ± 0.2872), metric MAE, 6/2/2 graphs",
                "note: node feature 0 (from 0) equals the target y0 in every row: leave it out if "
                "it is not known beforehand",
            ],
        ),
    ],
    ids=[
        "signs",
        "nodes",
        "untrained classes",
        "many classes",
        "answers",
        "whole numbers",
        "target among features",
    ],
)
def test_what_was_understood_is_reported(labels: list[object], told: list[str]) -> None:
    assert [*understood(*take_graphs(graphs(labels), small()))] == told


def test_a_feature_that_tells_the_class_is_named_whichever_class_is_1() -> None:
    own = graphs([1, 0] * 5)
    for graph in own:
        graph.x = 1 - graph.y.float().expand(3, 1)
    (note,) = understood(*take_graphs(own, small()))[1:]
    assert note.startswith("note: node feature 0 (from 0) equals the class in every row")


def test_pairs_of_one_graph_are_counted_in_their_own_split() -> None:
    edges = torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(0))
    graph = Data(x=torch.rand(30, 2), edge_index=edges)
    made, store = take_graphs(graph, options=DataOptions(level="link"))
    sizes = [store.split_size(split) for split in ("train", "validation", "test")]
    assert understood(made, store)[0].endswith(f"{sizes[0]}/{sizes[1]}/{sizes[2]} pairs")
    assert f" for {sizes[0]} training labels" in made.chosen


def test_targets_are_learned_standardised_and_reported_in_their_units(tmp_path: Path) -> None:
    labels = [5000.0 + 300 * number for number in range(20)]
    experiment, store = take_graphs(graphs(labels), small(**{"train.epochs": 8}))
    assert experiment.data is not None
    assert experiment.data.statistics is not None
    train = torch.tensor(labels)[store.split_ids("train")]
    assert experiment.data.statistics.mean == (pytest.approx(float(train.mean())),)
    assert experiment.data.statistics.std == (pytest.approx(float(train.std(correction=0))),)

    result = fit(experiment, store, run_dir=tmp_path / "run")
    trained = load(tmp_path / "run")
    assert trained.experiment == experiment
    ids = store.split_ids("test")
    found = trained.predict(graphs(labels))
    predicted, right = found.outputs[ids, 0], torch.tensor(labels)[ids]
    scores = result.scores["test"]
    assert [*scores] == ["loss", "mean_absolute_error", "rmse", "r2", "spearman"]
    assert scores["mean_absolute_error"] == pytest.approx(scores["loss"])
    assert scores["loss"] == pytest.approx(mean_absolute_error(right, predicted), rel=1e-3)
    assert scores["r2"] == pytest.approx(r2_score(right, predicted), abs=1e-3)
    # a model that begins at 0 instead of the mean is thousands away from each target
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert all(row["train_loss"] < 3000 for row in rows)
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert found.std is None or float(found.std.max()) < 3000
    # scored again as the run did, from what the weights know
    again = scorer_of(trained, store, torch.device("cpu")).score("test")
    assert again == pytest.approx(scores, rel=1e-6)


def test_the_metric_chooses_the_epoch_in_its_own_direction(tmp_path: Path) -> None:
    labels = [number % 2 for number in range(20)]
    for metric, best in (("log_loss", min), ("mcc", max)):
        experiment, store = take_graphs(
            graphs(labels), small(**{"train.metric": metric, "train.epochs": 4})
        )
        run = tmp_path / metric
        result = fit(experiment, store, run_dir=run, progress=False)
        values = [row[f"validation_{metric}"] for row in read_rows(run / "metrics.csv")]
        assert result.metric == metric
        assert result.validation == best(values)
        assert [*result.scores["test"]][1] == metric
        assert {"accuracy", "roc_auc", "macro_f1"} < {*result.scores["test"]}
        assert read_config(run).experiment.train.metric == metric
        changed = replace(experiment, train=replace(experiment.train, metric="accuracy"))
        with pytest.raises(UserError, match=r"train\.metric must be '(log_loss|mcc)', as when"):
            fit(changed, store, run_dir=run, resume=True)


def test_a_benchmark_reports_its_own_metric_beside_the_chosen_one() -> None:
    for overrides, metrics in (({}, ()), ({"train.metric": "macro_f1"}, ("macro_f1",))):
        assert tiny_experiment(**overrides).metrics == (*metrics, "accuracy")


@pytest.mark.parametrize("features", ["constant", "single"])
def test_features_without_information_are_learned_from(features: str, tmp_path: Path) -> None:
    given = graphs([0, 1] * 10)
    for graph in given:
        graph.x = torch.ones(3, 1) if features == "single" else torch.cat([graph.x, graph.x * 0], 1)
    experiment, store = take_graphs(given, small())
    result = fit(experiment, store, run_dir=tmp_path / "run", progress=False)
    assert math.isfinite(result.scores["validation"]["loss"])
    notes = understood(experiment, store)[1:]
    assert notes == (("note: 1 of 2 node features are constant",) if features != "single" else ())

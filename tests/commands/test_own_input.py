"""Custom graphs given to `graphmamba evaluate` and `graphmamba predict` by --input."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from graphmamba.cli import main
from graphmamba.data.catalog import PEPTIDE_FUNCTIONS, Features, Task
from graphmamba.data.custom import read_folder
from graphmamba.data.custom.options import DataSource
from graphmamba.data.store import GraphStore
from graphmamba.nn.config import ModelConfig
from graphmamba.training.checkpoint import save_weights
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import Experiment, load_experiment
from graphmamba.training.predict import with_read_columns
from tests.helpers.commands import predicted, scored
from tests.helpers.own_files import write_graphs, write_rings, write_rows
from tests.helpers.synthetic import synthetic_graphs
from tests.test_cli import status_of

TASTES = Task("graph", 2, "cross_entropy", "accuracy", classes=2)


def own_model(
    columns: Sequence[str] = ("size",),
    task: Task = TASTES,
    target: str = "taste",
    names: tuple[str, ...] = ("sour", "sweet"),
) -> str:
    """A file of weights for custom graphs, whose feature columns may have names."""
    named = tuple(columns) if len(columns) > 1 else ()
    features = Features(node_columns=len(columns))
    own = DataSource(
        path="sweets", target=target, features=features, labels=task, class_names=names,
        columns=named,
    )  # fmt: skip
    experiment = Experiment(data=own, model=ModelConfig(channels=24, layers=1))
    save_weights("own.safetensors", experiment.build(), experiment, class_names=names)
    return "own.safetensors"


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("mnist", "accuracy"),
        ("pascalvoc-sp", "macro_f1"),
        ("cluster", "accuracy_sbm"),
        ("pattern/default", "accuracy_sbm"),
    ],
)
def test_a_benchmark_s_model_is_scored_on_own_graphs_by_its_own_metric(
    name: str, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = load_experiment(name, {"model.channels": 24, "model.layers": 1})
    torch.manual_seed(0)
    # as if the recipe of the training had named it
    loss = experiment.dataset_info.task.loss
    experiment = replace(experiment, train=replace(experiment.train, loss=loss))
    model = experiment.build()
    save_weights("model.safetensors", model, experiment)
    graphs = synthetic_graphs(experiment.dataset_info, 5, nodes=(3, 9))
    write_graphs(Path("own"), graphs)
    told = scored(["model.safetensors", "--input", "own", "--target", "kind"], capsys)
    store = with_read_columns(GraphStore.from_pyg(graphs), model)
    wanted = evaluate(model, store, torch.arange(5), batch_size=experiment.train.batch_size)
    assert list(wanted) == ["loss", metric]
    assert {key: told[key] for key in wanted} == pytest.approx(wanted, rel=1e-4)


def test_a_benchmark_s_model_is_scored_on_molecules(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rdkit")
    experiment = load_experiment("peptides-func", {"model.channels": 24, "model.layers": 1})
    torch.manual_seed(0)
    model = experiment.build()
    save_weights("func.safetensors", model, experiment, class_names=experiment.dataset_info.names)
    answers = [[(row + column) % 3 % 2 for column in range(10)] for row in range(4)]
    rows = [[smiles, *row] for smiles, row in zip(("CCO", "C", "CN", "CC=O"), answers, strict=True)]
    write_rows(Path("new.csv"), ["smiles", *PEPTIDE_FUNCTIONS], rows)
    words = ["func.safetensors", "--input", "new.csv"]
    assert status_of(["evaluate", *words]) == 2
    assert "otherwise `--target`) must name one column" in capsys.readouterr().err
    told = scored([*words, "--target", ",".join(PEPTIDE_FUNCTIONS)], capsys)
    assert told["graphs"] == 4
    main(["predict", *words, "--output", "out.csv"])
    found = [*csv.DictReader(Path("out.csv").read_text().splitlines())]
    scores = torch.tensor(
        [[float(row[f"p_{name}"]) for name in PEPTIDE_FUNCTIONS] for row in found]
    )
    wanted = average_precision_score(torch.tensor(answers), scores, average="macro")
    assert told["average_precision"] == pytest.approx(wanted)
    capsys.readouterr()
    assert status_of(["evaluate", *words, "--target", ",".join(PEPTIDE_FUNCTIONS[::-1])]) == 2
    assert (
        "target must name the columns in the order of the model's, anti" in capsys.readouterr().err
    )


def test_a_model_that_reads_no_edges_is_scored_on_graphs_that_have_some(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_rings(Path("rings"), 3)
    words = [own_model(), "--input", "rings"]
    usual = scored(words, capsys)
    edges = [*csv.reader((folder / "edges.csv").read_text().splitlines())]
    write_rows(folder / "edges.csv", [*edges[0], "w"], [[*row, 0.5] for row in edges[1:]])
    assert scored(words, capsys) == usual


def test_a_part_of_an_input_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    words = [own_model(), "--input", str(write_rings(Path("rings"), 4))]
    assert predicted(words) == predicted([*words, "--split", "all"]) == ["g0", "g1", "g2", "g3"]
    capsys.readouterr()
    assert status_of(["predict", *words, "--split", "test"]) == 2
    assert "rings must say in `split` which part" in capsys.readouterr().err
    rows = [["g0", "train"], ["g1", "test"], ["g2", "train"], ["g3", "test"]]
    write_rows(Path("rings/graphs.csv"), ["graph", "split"], rows)
    assert predicted(words) == ["g0", "g1", "g2", "g3"]
    assert predicted([*words, "--split", "test"]) == ["g1", "g3"]
    capsys.readouterr()
    assert status_of(["predict", *words, "--split", "validation"]) == 2
    assert "a part of rings that holds graphs, got 'validation'" in capsys.readouterr().err


def test_graphs_without_a_label_are_not_counted_as_scored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_rings(Path("rings"), 6)
    words = [own_model(), "--input", "rings"]
    rows = [[f"g{n}", "sweet" if n < 2 else ""] for n in range(6)]
    write_rows(folder / "graphs.csv", ["graph", "taste"], rows)
    assert scored(words, capsys)["graphs"] == 2
    write_rows(folder / "graphs.csv", ["graph", "taste"], [[name, ""] for name, _ in rows])
    assert status_of(["evaluate", *words]) == 2
    assert "rings must hold labels, and its graphs have none (6)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_columns_that_change_places_are_rejected(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_rings(Path("rings"), 4)
    nodes = [*csv.reader((folder / "nodes.csv").read_text().splitlines())]
    model = own_model(("nodes/size", "nodes/mass"))
    words = [command, model, "--input", "rings"]
    write_rows(folder / "nodes.csv", [*nodes[0], "mass"], [[*row, 1] for row in nodes[1:]])
    main(words)
    swapped = [[*row[:2], 1, row[2]] for row in nodes[1:]]
    write_rows(folder / "nodes.csv", ["graph", "node", "mass", "size"], swapped)
    capsys.readouterr()
    assert status_of(words) == 2
    assert (
        "rings must have the features that the model was trained on, in their order, nodes/size, "
        "nodes/mass; got nodes/mass, nodes/size\n"
    ) in capsys.readouterr().err


def test_an_input_may_come_in_another_format(capsys: pytest.CaptureFixture[str]) -> None:
    words = [own_model(), "--input"]
    own = read_folder(write_rings(Path("rings"), 4), "taste")
    columns = own.columns
    np.savez(
        "rings.npz",
        node_ptr=columns.node_ptr,
        edge_ptr=columns.edge_ptr,
        edge_index=columns.edge_index,
        x=columns.nodes["x"],
        y=columns.graphs["y"],
    )
    told = [scored([*words, path], capsys) for path in ("rings", "rings.npz")]
    assert told[0]["accuracy"] == told[1]["accuracy"]


def test_targets_that_happen_to_be_whole_are_targets_still(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = own_model(task=Task("graph", 1, "l1", "rmse"), target="grams", names=("grams",))
    folder = write_rings(Path("rings"), 3)
    write_rows(folder / "graphs.csv", ["graph", "grams"], [["g0", 1], ["g1", 2], ["g2", 2]])
    assert isinstance(scored([model, "--input", "rings"], capsys)["mean_absolute_error"], float)

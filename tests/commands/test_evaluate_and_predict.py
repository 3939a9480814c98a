"""`graphmamba evaluate` and `graphmamba predict` on weights that were saved before."""

import csv
import json
import math
from pathlib import Path

import pytest
import torch

import graphmamba
from graphmamba.cli import main
from graphmamba.config import load_experiment
from graphmamba.data.catalog import MOLECULES, PEPTIDE_FUNCTIONS, Features, Task
from graphmamba.data.own.source import OwnSource
from graphmamba.stack.config import StackConfig
from graphmamba.train.evaluate import evaluate
from graphmamba.train.experiment import Experiment
from graphmamba.train.open_data import open_data
from graphmamba.train.weights import save_weights
from tests.helpers.own_files import write_rings, write_rows
from tests.test_cli import status_of

pytest.importorskip("jsonargparse")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights of a small model for a small drawn set."""
    folder = tmp_path_factory.mktemp("run")
    small = {"sizes": [6, 3, 4], "model.channels": 8, "model.layers": 1}
    experiment = load_experiment("pattern/default", small)
    torch.manual_seed(0)
    save_weights(folder / "best.safetensors", experiment.build(), experiment)
    return folder


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_ROOT", str(tmp_path / "root"))
    return tmp_path


def scored(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What an evaluation says, read from its JSON."""
    capsys.readouterr()
    main(["evaluate", *words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("split", ["test", "all"])
def test_scores_are_those_of_the_python_call(
    run: Path, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = scored([str(run), "--split", split], capsys)
    assert (told["split"], told["graphs"]) == (split, 13 if split == "all" else 4)
    trained = graphmamba.load(run)
    _, store = open_data(trained.experiment)
    chosen = torch.arange(13) if split == "all" else split
    assert told.items() >= evaluate(trained.model, store, chosen, batch_size=16).items()
    main(["evaluate", str(run), "--split", split])
    shown = capsys.readouterr().out
    assert f"{told['accuracy_sbm']:.4f}" in shown
    assert "PATTERN" in shown


def test_json_has_a_word_for_what_is_no_number(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("graphmamba.train.scorer.Scorer.score", lambda *_: {"loss": math.nan})
    main(["evaluate", str(run), "--json"])
    out = capsys.readouterr().out
    assert "NaN" not in out
    assert json.loads(out)["loss"] is None


def test_a_split_becomes_a_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["predict", str(run), "--output", "found/them.csv", "--budget", "5000"])
    rows = [*csv.DictReader(Path("found/them.csv").read_text().splitlines())]
    assert "rows written to found/them.csv" in capsys.readouterr().out
    assert {row["graph"] for row in rows} == {"9", "10", "11", "12"}
    assert list(rows[0]) == ["graph", "node", "class", "p_host", "p_pattern", "spread"]
    assert all(0 <= float(row["spread"]) < 0.5 for row in rows)
    main(["predict", str(run), "--spread", "false", "--output", "plain.csv"])
    assert "spread" not in Path("plain.csv").read_text()


def test_pretrained_weights_are_found_by_name(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path("weights/pattern/graph-mamba")
    place.mkdir(parents=True)
    (place / "best.safetensors").write_bytes((run / "best.safetensors").read_bytes())
    for name in ("pattern", "pattern/graph-mamba"):
        main(["evaluate", "--pretrained", name, "--weights", "weights", "--json"])
    monkeypatch.setenv("GRAPHMAMBA_WEIGHTS", "weights")
    main(["predict", "--pretrained", "pattern"])
    capsys.readouterr()
    assert status_of(["evaluate", "--pretrained", "patern"]) == 2
    assert "did you mean 'pattern/graph-mamba'?" in capsys.readouterr().err
    assert status_of(["evaluate", "--pretrained", "pcqm-contact"]) == 2
    assert "; there is: pattern/graph-mamba\n" in capsys.readouterr().err


def test_a_benchmark_s_model_predicts_new_molecules() -> None:
    pytest.importorskip("rdkit")
    small = {"model.channels": 24, "model.layers": 1}
    experiment = load_experiment("peptides-func", small)
    save_weights("peptides.safetensors", experiment.build(), experiment)
    write_rows(Path("new.csv"), ["name", "smiles"], [["ethanol", "CCO"], ["glycine", "NCC(=O)O"]])
    main(["predict", "peptides.safetensors", "--input", "new.csv", "--output", "out.csv"])
    rows = [*csv.DictReader(Path("out.csv").read_text().splitlines())]
    assert [row["graph"] for row in rows] == ["0", "1"]
    assert all(0 < float(row[f"p_{name}"]) < 1 for row in rows for name in PEPTIDE_FUNCTIONS)


def own_model(features: Features, columns: tuple[str, ...] = ()) -> str:
    """A file of weights for own graphs with tastes, whose feature columns may have names."""
    task = Task("graph", 2, "cross_entropy", "accuracy", classes=2)
    own = OwnSource(
        path="sweets",
        label="taste",
        features=features,
        task=task,
        names=("sour", "sweet"),
        columns=columns,
    )
    experiment = Experiment(own=own, model=StackConfig(channels=24, layers=1))
    save_weights("own.safetensors", experiment.build(), experiment, class_names=own.names)
    return "own.safetensors"


def predicted(words: list[str]) -> list[str]:
    """The graphs in the file that a command writes."""
    main(["predict", *words, "--output", "out.csv"])
    return [row["graph"] for row in csv.DictReader(Path("out.csv").read_text().splitlines())]


def test_a_part_of_an_input_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    words = [own_model(Features(node_columns=1)), "--input", str(write_rings(Path("rings"), 4))]
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


def test_all_of_an_input_is_scored_unless_its_files_name_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_rings(Path("rings"), 20)
    words = [own_model(Features(node_columns=1)), "--input", "rings"]
    told = scored(words, capsys)
    assert (told["split"], told["graphs"]) == ("all", 20)
    assert told == scored([*words, "--split", "all"], capsys)
    main(["evaluate", *words])
    shown = capsys.readouterr().out
    assert "rings, graphs scored: 20" in shown
    assert "all" in shown
    for command in ("evaluate", "predict"):
        assert status_of([command, *words, "--split", "test"]) == 2
        assert "rings must say in `split` which part" in capsys.readouterr().err
    rows = [[f"g{n}", ["sweet", "sour"][n % 2], "test" if n < 3 else "train"] for n in range(20)]
    write_rows(folder / "graphs.csv", ["graph", "taste", "split"], rows)
    told = scored([*words, "--split", "test"], capsys)
    assert (told["split"], told["graphs"]) == ("test", 3)
    assert scored(words, capsys)["graphs"] == 20
    for command in ("evaluate", "predict"):
        assert status_of([command, *words, "--split", "validation"]) == 2
        said = capsys.readouterr().err
        assert "a part of rings that holds graphs, got 'validation'" in said


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_columns_that_change_places_are_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_rings(Path("rings"), 4)
    nodes = [*csv.reader((folder / "nodes.csv").read_text().splitlines())]
    model = own_model(Features(node_columns=2), ("nodes/size", "nodes/mass"))
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


def test_a_file_in_other_letters_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    model = own_model(Features(node_columns=1), ("nodes/size",))
    words = [model, "--input", str(write_rings(Path("rings"), 2))]
    nodes = Path("rings/nodes.csv")
    nodes.write_bytes(nodes.read_bytes().replace(b"size", "größe".encode("latin-1")))
    for command in ("evaluate", "predict"):
        assert status_of([command, *words]) == 2
        err = capsys.readouterr().err
        assert err.startswith("graphmamba: rings/nodes.csv must be text in UTF-8")
        assert err.count("\n") == 1


def test_targets_that_happen_to_be_whole_are_targets_still(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = Task("graph", 1, "l1", "mean_absolute_error")
    features = Features(node_columns=1)
    own = OwnSource(path="old", label="grams", features=features, task=task, names=("grams",))
    experiment = Experiment(own=own, model=StackConfig(channels=24, layers=1))
    save_weights("grams.safetensors", experiment.build(), experiment)
    folder = write_rings(Path("rings"), 3)
    write_rows(folder / "graphs.csv", ["graph", "grams"], [["g0", 1], ["g1", 2], ["g2", 2]])
    told = scored(["grams.safetensors", "--input", "rings"], capsys)
    assert isinstance(told["mean_absolute_error"], float)


def test_few_graphs_may_hold_few_of_the_classes(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_rings(Path("rings"), 3)
    write_rows(folder / "graphs.csv", ["graph", "taste"], [[f"g{n}", "sour"] for n in range(3)])
    words = [own_model(Features(node_columns=1)), "--input", "rings"]
    assert scored(words, capsys)["accuracy"] in (0, 1 / 3, 2 / 3, 1)


def test_an_input_of_another_kind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", own_model(MOLECULES), "--input", str(write_rings(Path("rings"), 4))]
    assert status_of(words) == 2
    assert (
        "rings must have the columns of sweets, which the model was trained on: atoms of "
        "molecules, bonds; got 1 number a node, no numbers an edge\n"
    ) in capsys.readouterr().err


def test_a_model_that_reads_no_edges_takes_graphs_that_have_some() -> None:
    words = [own_model(Features(node_columns=1)), "--input", str(write_rings(Path("rings"), 1))]
    rows = [["g0", "n0", "n1", 0.5], ["g0", "n1", "n2", 1.5]]
    write_rows(Path("rings/edges.csv"), ["graph", "source", "target", "w"], rows)
    assert predicted(words) == ["g0"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["evaluate", "RUN", "--benchmark", "mnist"],
            "graphs of MNIST must have the columns and labels of the model, 3 numbers a node, "
            "no numbers an edge and 2 classes of a node by accuracy_sbm, got 3 numbers a node, "
            "1 number an edge and 10 classes of a graph by accuracy",
        ),
        (["evaluate", "RUN", "--benchmark", "mnst"], "benchmark must be one of"),
        (["evaluate", "RUN", "--pretrained", "x"], "must be given"),
        (["evaluate", "RUN", "--benchmark", "pattern", "--input", "x"], "only one of"),
        (["predict", "RUN", "--benchmark", "pattern", "--input", "x"], "only one of"),
        (["predict", "RUN", "--input", "absent"], "got no 'absent'"),
        (["predict", "RUN", "--input", "rings"], "rings must have the columns of PATTERN, which"),
        (["predict", "RUN", "--budget", "0"], "budget must be at least 1, got 0"),
        (["predict", "RUN", "--output", "rings"], "output must be a file"),
        (["predict", "broken.safetensors"], "broken.safetensors' is corrupt"),
    ],
)
def test_mistakes_give_one_line(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rings(Path("rings"))
    Path("broken.safetensors").write_bytes(b"\0" * 100)
    assert status_of([str(run) if word == "RUN" else word for word in words]) == 2
    streams = capsys.readouterr()
    assert told in streams.err
    assert streams.err.count("\n") == 1
    assert not Path("predictions.csv").exists()

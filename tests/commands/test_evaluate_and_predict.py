"""`graphmamba evaluate` and `graphmamba predict` on weights that were saved before."""

import csv
import math
from pathlib import Path

import pytest
import torch

import graphmamba
from graphmamba.cli import main
from graphmamba.training.checkpoint import save_weights
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import load_experiment
from graphmamba.training.graphs import open_data
from tests.helpers.commands import scored
from tests.helpers.own_files import write_rings
from tests.test_cli import status_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights of a small model for a small drawn set."""
    folder = tmp_path_factory.mktemp("run")
    small = {"split_sizes": [6, 3, 4], "model.channels": 8, "model.layers": 1}
    experiment = load_experiment("pattern/default", small)
    torch.manual_seed(0)
    save_weights(folder / "best.safetensors", experiment.build(), experiment)
    return folder


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


def test_what_the_file_reports_of_the_same_graphs_stands_beside_the_scores(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = graphmamba.load(run)
    told = {
        "train": {"loss": 0.5},
        "validation": {"loss": 0.75, "accuracy_sbm": 0.625},
        "test": {"loss": 0.875, "accuracy_sbm": math.nan},
    }
    save_weights("told.safetensors", trained.model, trained.experiment, scores=told)
    assert scored(["told.safetensors", "--split", "validation"], capsys)["reported"] == {
        "loss": 0.75,
        "accuracy_sbm": 0.625,
    }
    main(["evaluate", "told.safetensors", "--split", "validation"])
    shown = capsys.readouterr().out
    assert "validation, reported" in shown
    assert [line.split()[-1] for line in shown.splitlines() if " 0." in line] == [
        "0.7500",
        "0.6250",
    ]
    assert scored(["told.safetensors"], capsys)["reported"]["accuracy_sbm"] is None
    # of all graphs, of those it learned from, and of another set it says nothing
    opened = open_data(trained.experiment)
    monkeypatch.setattr("graphmamba.commands.inference.open_data", lambda *_, **__: opened)
    for words in (["--split", "all"], ["--split", "train"], ["--dataset", "pattern"]):
        assert "reported" not in scored(["told.safetensors", *words], capsys)


def test_a_split_becomes_a_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["predict", str(run), "--output", "found/them.csv", "--budget", "5000"])
    rows = [*csv.DictReader(Path("found/them.csv").read_text().splitlines())]
    assert "rows written to found/them.csv" in capsys.readouterr().out
    assert {row["graph"] for row in rows} == {"9", "10", "11", "12"}
    assert list(rows[0]) == ["graph", "node", "class", "p_host", "p_pattern", "std"]
    assert all(0 <= float(row["std"]) < 0.5 for row in rows)
    main(["predict", str(run), "--no-std", "--output", "plain.csv"])
    assert "std" not in Path("plain.csv").read_text()


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["evaluate", "RUN", "--dataset", "mnist"],
            "graphs of MNIST must have the columns and labels of the model, 3 numbers per node, "
            "no numbers per edge and 2 classes of a node by accuracy_sbm, got 3 numbers per node, "
            "1 number per edge and 10 classes of a graph by accuracy",
        ),
        (["evaluate", "RUN", "--dataset", "mnst"], "dataset must be one of"),
        (["evaluate", "RUN", "--pretrained", "x"], "--pretrained must be left out beside '"),
        (["evaluate", "--weights", "x"], "or --pretrained, must be given, got none"),
        (
            ["predict", "RUN", "--weights", "x"],
            "--weights must be left out beside '",
        ),
        (["predict", "RUN", "--dataset", "pattern", "--input", "x"], "only one of"),
        (
            ["evaluate", "RUN", "--target", "taste"],
            "target must be given for an --input alone, got taste",
        ),
        (["evaluate", "RUN", "--target", "y", "--input", "numbers.npz"], "got y for numbers.npz"),
        (
            ["evaluate", "RUN", "--target", "tste", "--input", "rings"],
            "column 'tste' must be there",
        ),
        (["evaluate", "RUN", "--target", "size", "--input", "rings"], "got 1 number per node"),
        (["predict", "RUN", "--input", "absent"], "got no 'absent'"),
        (["predict", "RUN", "--input", "rings"], "rings must have the columns of PATTERN, which"),
        (["predict", "RUN", "--budget", "0"], "budget must be at least 1, got 0"),
        (["predict", "RUN", "--output", "rings"], "output must be a file"),
        (["predict", "broken.safetensors"], "broken.safetensors' is corrupt"),
    ],
)
def test_errors_give_one_line(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rings(Path("rings"))
    Path("broken.safetensors").write_bytes(b"\0" * 100)
    assert status_of([str(run) if word == "RUN" else word for word in words]) == 2
    streams = capsys.readouterr()
    assert told in streams.err
    assert streams.err.count("\n") == 1
    assert not Path("predictions.csv").exists()


def test_nothing_that_is_read_is_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    write_rings(Path("rings"))
    words = ["--data.target", "taste", "--model.channels", "8", "--model.layers", "1"]
    main(["train", "rings", *words, "--train.epochs", "1", "--run_dir", "own"])
    before = {
        file: file.read_bytes()
        for file in [*Path("rings").iterdir(), *Path("own").iterdir()]
        if file.is_file() and file.name != ".lock"
    }
    for file in before:
        for given in (["--input", "rings"], []):
            words = ["predict", "own", *given, "--output", str(file)]
            assert status_of(words) == 2
            told = "output must not be a file that is read or that a run wrote"
            assert f"{told}, got '{file}'" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before
    main(["predict", "own", "--input", "rings", "--output", "own/predictions.csv"])
    main(["predict", "own", "--input", "rings", "--output", "own/predictions.csv"])

"""`graphmamba train`: from words to a run folder, a table and the next command."""

import json
import re
from pathlib import Path

import pytest

import graphmamba
from graphmamba.cli import main
from graphmamba.training.experiment import load_experiment
from graphmamba.training.run_dir import read_config, read_rows
from tests.helpers.own_files import write_rings, write_rows
from tests.helpers.raw_files import write_malnet
from tests.helpers.runs import assert_same_run
from tests.test_cli import status_of

NARROW = ["--model.channels", "8", "--model.layers", "1"]
SMALL = ["--split_sizes", "8,4,4", *NARROW, "--train.batch_size", "4"]
FILES = {
    "config.yaml", "metrics.csv", "results.json", "best.safetensors", "curves.png", "last", ".lock",
}  # fmt: skip


def test_a_run_leaves_all_its_files_and_says_what_to_type_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    main(["train", *SMALL, "--train.epochs", "2", "--seed", "3", "--run_dir", "run"])
    shown = capsys.readouterr().out
    assert {file.name for file in Path("run").iterdir()} == FILES
    lines = shown.splitlines()
    assert lines[0].startswith("PATTERN: 8 + 4 + 4 graphs, ")
    assert lines[0].endswith("seed 3, to run")
    assert lines[1].startswith("task: node classification, 2 classes, metric accuracy")
    assert [line.partition(":")[0] for line in lines[2:4]] == ["epoch 1/2", "epoch 2/2"]
    assert not any("test" in line for line in lines[:4])
    assert [row["epoch"] for row in read_rows(Path("run/metrics.csv"))] == [0, 1]
    assert "test_accuracy_sbm" in read_rows(Path("run/metrics.csv"))[0]
    for seen in ("validation", "test", "accuracy", "run/best.safetensors", "run/curves.png"):
        assert seen in shown
    assert "graphmamba predict run --output predictions.csv" in shown
    assert Path("run/curves.png").read_bytes().startswith(b"\x89PNG")
    experiment, options, *_ = read_config("run")
    assert (experiment.split_sizes, options.seed) == ((8, 4, 4), 3)
    results = json.loads(Path("run/results.json").read_text())
    assert results["metric"] == "accuracy_sbm"
    main(["evaluate", "run", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told.items() >= results["scores"]["test"].items()


def test_the_file_of_a_run_makes_the_same_one_again() -> None:
    words = ["--train.epochs", "1", "--accumulate_grad_batches", "2", "--seed", "5"]
    main(["train", *SMALL, *words, "--run_dir", "first"])
    main(["train", "first/config.yaml", "--run_dir", "second"])
    assert read_config("second") == read_config("first")
    assert_same_run(Path("first"), Path("second"))
    main(["train", "first/config.yaml", "--seed", "6", "--run_dir", "third"])
    options = read_config("third").options
    assert (options.seed, options.accumulate_grad_batches) == (6, 2)


def test_a_backend_that_cannot_run_here_is_rejected_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    words = ["train", *SMALL, "--model.mamba.backend", "triton", "--device", "cpu"]
    assert status_of([*words, "--run_dir", "run"]) != 0
    shown = capsys.readouterr().err
    assert "model.mamba.backend must be one of 'auto', 'reference', 'cpu'" in shown
    assert "Traceback" not in shown
    assert not Path("run").exists()


def test_printed_config_is_the_experiment(
    capsys: pytest.CaptureFixture[str], somewhere: Path
) -> None:
    words = ["peptides-func", "--encoder.laplacian.num_eigenvectors", "8", "--optim.lr=1e-4"]
    main(["train", *words, "--print_config"])
    file = Path("whole.yaml")
    file.write_text(capsys.readouterr().out)
    changes = {"encoder.laplacian.num_eigenvectors": 8, "optim.lr": 1e-4}
    assert load_experiment(file) == load_experiment("peptides-func", changes)
    main(["train", str(file), "--print-config"])
    assert capsys.readouterr().out == file.read_text()
    assert [*somewhere.iterdir()] == [somewhere / "whole.yaml"]


@pytest.mark.parametrize("seeds", ["0,4", "4,0"])
def test_of_several_seeds_validation_chooses_everywhere(
    seeds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", *SMALL, "--train.epochs", "1", "--seeds", seeds, "--run_dir", "runs"])
    runs = json.loads(Path("runs/results.json").read_text())["runs"]
    best = max(runs, key=lambda run: run["scores"]["validation"][run["metric"]])
    shown = capsys.readouterr().out
    assert f"best weights  runs/seed-{best['seed']}/best.safetensors" in shown
    assert graphmamba.load("runs").path == Path(f"runs/seed-{best['seed']}/best.safetensors")


def test_a_run_says_where_it_stopped_and_what_kept_it_from_learning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    still = ["--early_stopping", "1", "--optim.lr", "1e-12"]
    main(["train", *SMALL, "--train.epochs", "20", *still, "--run_dir", "stopped"])
    shown = capsys.readouterr().out
    assert re.search(r"^stopped       after \d+ of 20 epochs \(early stopping\)$", shown, re.M)
    assert "note" not in shown
    main(["train", *SMALL, "--train.epochs", "3", "--optim.warmup", "5", "--run_dir", "short"])
    shown = capsys.readouterr().out
    assert "note          optim.warmup is 5 epochs: 3 do not end it" in shown
    assert "stopped" not in shown


def test_published_numbers_do_not_stand_beside_a_part_of_the_set(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_malnet(Path())
    main(["data", "build", "malnet-tiny", "--from", ".", "--data_dir", "sets"])
    main(["train", "malnet-tiny", "--train.epochs", "1", "--data_dir", "sets", "--run_dir", "run"])
    told, _, shown = capsys.readouterr().out.partition("best epoch")
    assert "has 0.9340 ± 0.0027 on 5,000 graphs; not comparable with 3 here" in told
    assert "test" in shown
    assert "0.9340" not in shown


@pytest.mark.parametrize("form", ["word", "option", "yaml"])
def test_own_graphs_from_a_folder(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_rings(Path("rings"))
    Path("own.yaml").write_text("data: {path: rings, target: taste, undirected: true}\n")
    own = ["--data.target", "taste", "--data.undirected", "true"]
    words = {
        "word": [str(folder), *own],
        "option": ["--data.path", str(folder), *own],
        "yaml": ["own.yaml"],
    }[form]
    small = [*NARROW, "--train.epochs", "1"]
    main(["train", *words, *small, "--run_dir", "run"])
    assert "--input GRAPHS" in capsys.readouterr().out
    trained = graphmamba.load("run")
    assert trained.names == ("sour", "sweet")
    assert trained.experiment.data is not None
    assert trained.experiment.data.labels == trained.model.task
    main(["predict", "run", "--input", "rings", "--output", "tastes.csv"])
    lines = Path("tastes.csv").read_text().splitlines()
    assert lines[0] == "graph,class,p_sour,p_sweet,std"
    assert [line.split(",")[0] for line in lines[1:]] == [f"g{number}" for number in range(12)]
    main(["evaluate", "run", "--split", "all", "--json"])
    told = capsys.readouterr().out
    own = json.loads(told[told.index("{") :])
    write_rings(Path("more"), graphs=12)
    main(["evaluate", "run", "--input", "more", "--split", "all", "--json"])
    assert json.loads(capsys.readouterr().out) == own | {"data": "more"}


def test_own_graphs_that_have_changed_are_not_taken_for_those_of_the_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write_rings(Path("rings")) / "graphs.csv"
    words = ["train", "rings", "--data.target", "taste", *NARROW, "--train.epochs", "2"]
    main([*words, "--run_dir", "whole"])
    assert status_of([*words, "--run_dir", "part", "--max-time", "0"]) == 75
    first, *rows = file.read_text().splitlines()
    file.write_text("\n".join([first, *reversed(rows)]) + "\n")
    capsys.readouterr()
    for later in (["evaluate", "whole"], ["train", "--resume", "part"]):
        with pytest.raises(SystemExit):
            main(later)
        assert "data.path must hold the graphs of the training" in capsys.readouterr().err
    main(["evaluate", "whole", "--input", "rings"])
    file.write_text("\n".join([first, *rows]) + "\n")
    main(["evaluate", "whole"])
    main(["train", "--resume", "part"])


def test_labels_of_nodes_and_of_pairs() -> None:
    folder = write_rings(Path("rings"))
    nodes = [line.split(",") for line in (folder / "nodes.csv").read_text().splitlines()[1:]]
    pairs = [(f"g{number}", "n0", f"n{end}", end % 2) for number in range(12) for end in (1, 2)]
    write_rows(folder / "pairs.csv", ["graph", "source", "target", "close"], pairs)
    plain = (folder / "nodes.csv").read_text()
    marked = [[*row, "odd" if place % 2 else "even"] for place, row in enumerate(nodes)]
    write_rows(folder / "nodes.csv", ["graph", "node", "size", "parity"], marked)
    headers = {
        "parity": "graph,node,class,p_even,p_odd,std",
        "close": "graph,source,target,score,std",
    }
    for label, header in headers.items():
        small = [*NARROW, "--train.epochs", "1", "--run_dir", label]
        main(["train", "rings", "--data.target", label, *small])
        main(["predict", label, "--input", "rings", "--output", f"{label}.csv"])
        first, *lines = Path(f"{label}.csv").read_text().splitlines()
        assert first == header
        assert len(lines) == {"parity": len(nodes), "close": len(pairs)}[label]
        assert lines[0].startswith("g0,n0,")
        # words are no features
        (folder / "nodes.csv").write_text(plain)


def test_several_seeds_go_on_as_they_are_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *SMALL, "--train.epochs", "1", "--run_dir", "runs"]
    assert status_of([*words, "--seeds", "0,1", "--max-time", "0"]) == 75
    assert "graphmamba train --resume runs" in capsys.readouterr().out
    main(["train", "--resume", "runs", "--max-time", "1000"])
    main(["train", "--resume", "runs", "--seeds", "2"])
    assert "seeds 0, 1, 2" in capsys.readouterr().out
    assert load_experiment("runs/config.yaml") == read_config("runs/seed-2").experiment
    for rejected, told in (
        ([*words, "--seeds", "3"], "must hold no run yet"),
        (["train", "--resume", "runs", "--precision", "bf16-mixed"], "must be '32-true'"),
        (["train", "--resume", "runs", "--seed", "3"], "seeds must be added by --seeds"),
        (["train", "--resume", "runs", "--print_config"], "must not be given to --resume"),
        (["train", "--resume", "runs/seed-2", "--seeds", "5"], "holds a single run"),
    ):
        assert status_of(rejected) == 2
        assert told in capsys.readouterr().err


def test_a_run_whose_scores_are_no_numbers_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_rings(Path("rings"))
    # where nobody answers yes, the average precision has no value
    answers = [(f"g{number}", 0) for number in range(12)]
    write_rows(folder / "graphs.csv", ["graph", "toxic"], answers)
    small = [*NARROW, "--train.epochs", "1", "--run_dir", "run"]
    with pytest.warns(UserWarning, match="labels may be too few, or all alike"):
        main(["train", "rings", "--data.target", "toxic", "--data.task", "multi-label", *small])
    shown = capsys.readouterr().out
    assert "no epoch has a number for the average_precision of validation" in shown
    assert "--resume" not in shown

"""From an experiment to a trained model and a folder that tells about it; a series of seeds."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphmamba.data.custom.options import DataOptions
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.nn.graph_mamba import GraphMambaBlock
from graphmamba.training import fit as fit_module
from graphmamba.training.checkpoint import build_model, load_weights
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.fit import fit, fit_seeds, run_fit
from graphmamba.training.graphs import open_data
from graphmamba.training.predict import load, load_pretrained
from graphmamba.training.run_dir import read_config, read_rows
from tests.helpers.runs import (
    Notes,
    assert_same_run,
    send,
    tiny_experiment,
    tiny_store,
    with_gaps,
    without_labels,
)
from tests.helpers.typecheck import typecheck_off
from tests.training.test_step import SETTLED

EXPERIMENT = tiny_experiment(**{"train.epochs": 1})
STORE = tiny_store(EXPERIMENT)


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """Shapes are checked elsewhere, and checking them takes longer than training."""
    with typecheck_off():
        yield


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def seeds_in(folder: Path) -> list[int]:
    """Those of the table, which must be those that the series says it has."""
    seeds = json.loads((folder / "results.json").read_text())["seeds"]
    assert read_config(folder).seeds == tuple(seeds)
    return seeds


def test_it_learns_the_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {
        "model.channels": 16,
        "model.layers": 2,
        "encoder.laplacian.channels": 8,
        "encoder.laplacian.num_eigenvectors": 8,
        "split_sizes": [80, 20, 20],
        "train.batch_size": 4,
        "train.epochs": 4,
        "optim.warmup": 0,
        "optim.lr": 1e-2,
    }
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "root"))
    experiment = load_experiment("pattern", overrides)
    result = fit(experiment, run_dir=tmp_path / "run")
    # guessing scores one half
    assert result.test > 0.7
    assert result.stop_reason == "finished"


BEYOND = "cluster/graph-mamba-plus malnet-tiny/graph-mamba-plus peptides-func/graph-mamba-spectral"


@pytest.mark.parametrize("name", BEYOND.split())
def test_a_recipe_beyond_the_paper_trains_and_its_weights_predict(
    name: str, tmp_path: Path
) -> None:
    changes = {"batch_size": 3, "epochs": 1, "recalibrate_batch_norm": 1}
    overrides = {f"train.{key}": value for key, value in changes.items()}
    experiment = load_experiment(name, {"model.layers": 2, **overrides})
    store = tiny_store(experiment, train=6, others=2, nodes=(4, 9))
    result = fit(experiment, store, RunOptions(device="cpu"), tmp_path / "run")
    assert result.stop_reason == "finished"
    assert all(map(math.isfinite, result.scores["validation"].values()))
    assert load(tmp_path / "run").predict(store).outputs.isfinite().all()


def test_same_seed_same_run_another_seed_another_and_the_callers_numbers_stay(
    tmp_path: Path,
) -> None:
    torch.manual_seed(99)
    expected = torch.rand(3)
    torch.manual_seed(99)
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        fit(EXPERIMENT, STORE, RunOptions(seed=seed), tmp_path / name)
    assert torch.equal(torch.rand(3), expected)
    torch.rand(7)
    fit(EXPERIMENT, STORE, RunOptions(seed=1), tmp_path / "four")
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "four")
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "one", tmp_path / "three")


def test_the_folder_tells_everything_and_the_reporter_hears_of_every_step(tmp_path: Path) -> None:
    experiment = tiny_experiment()
    store, notes = tiny_store(experiment), Notes()
    options = RunOptions(seed=3, device="cpu")
    result = fit(experiment, store, options, tmp_path / "run", notes)

    # what was decided at the start is kept
    decided = replace(options, compile="off")
    assert read_config(tmp_path / "run") == (experiment, decided, (), 0)
    assert load_experiment(tmp_path / "run" / "config.yaml") == experiment

    (start,) = notes.starts
    assert (start.epochs, start.steps, start.graphs["train"]) == (3, 4, 14)
    assert [(each.epoch, each.step) for each in notes.steps] == [
        (epoch, step) for epoch in range(3) for step in (1, 2, 3, 4)
    ]
    assert [each.graphs for each in notes.steps[:4]] == [4, 4, 4, 2]
    assert notes.results == [result]

    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [row["learning_rate"] for row in rows] == pytest.approx([1e-8, 1e-2, 5e-3])
    assert [row["train_loss"] for row in rows] == [each.train_loss for each in notes.epochs]
    chosen = max(rows, key=lambda row: row["validation_accuracy"])

    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert written == json.loads(json.dumps(result.content()))
    assert written["best_epoch"] == chosen["epoch"]
    assert written["scores"]["test"]["accuracy"] == chosen["test_accuracy"]
    assert written["seed"] == 3
    assert written["parameters"] == sum(p.numel() for p in experiment.build().parameters())
    assert written["environment"]["torch"] == torch.__version__
    assert written["peak_memory"] > 1e6

    weights = load_weights(tmp_path / "run" / "best.safetensors")
    model = build_model(weights)
    assert evaluate(model, store, "test", batch_size=4) == written["scores"]["test"]
    assert weights.metadata["epoch"] == written["best_epoch"]


def test_no_better_score_for_too_long_ends_the_run(tmp_path: Path) -> None:
    # nothing is learned: scores change only as long as BatchNorm gets to know the data
    experiment = tiny_experiment(**{"train.epochs": 30, "optim.lr": 1e-30})
    store = tiny_store(experiment)
    result = fit(experiment, store, RunOptions(early_stopping=2), tmp_path / "run")
    assert result.stop_reason == "early stopping"
    assert result.epochs == result.best_epoch + 1 + 2 < 30
    again = fit(experiment, store, RunOptions(early_stopping=2), tmp_path / "run", resume=True)
    assert again.epochs == result.epochs


def test_several_seeds_make_a_table_and_others_are_added(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    first = fit_seeds(EXPERIMENT, STORE, run_dir=folder, seeds=[4, 1])
    tests = [run.test for run in first.runs]
    assert first.mean("test", "accuracy") == pytest.approx(sum(tests) / 2)
    assert first.deviation("test", "accuracy") == pytest.approx(abs(tests[0] - tests[1]) / 2)
    written = json.loads((folder / "results.json").read_text())
    assert written["scores"]["test"]["accuracy"]["mean"] == first.mean("test", "accuracy")
    assert [run["run_dir"] for run in written["runs"]] == [
        str(folder / "seed-4"), str(folder / "seed-1")
    ]  # fmt: skip
    fit(EXPERIMENT, STORE, RunOptions(seed=1), tmp_path / "alone")
    assert_same_run(tmp_path / "alone", folder / "seed-1")
    # a series that is stopped loses no row
    notes, more = Notes({1: send(15)}), {"run_dir": folder, "resume": True}
    stopped = fit_seeds(EXPERIMENT, STORE, reporter=notes, seeds=[2, 1, 3], **more)
    assert [run.stop_reason for run in stopped.runs] == ["finished", "finished", "signal"]
    assert read_config(folder).seeds == (4, 1, 2, 3)
    result = fit_seeds(EXPERIMENT, STORE, seeds=[4], **more)
    assert [run.content() for run in result.runs[:2]] == [run.content() for run in first.runs]
    assert seeds_in(folder) == [4, 1, 2, 3]


def test_wrong_pairs_are_drawn_where_a_set_has_right_ones_only(tmp_path: Path) -> None:
    experiment = tiny_experiment("pcqm-contact/graph-mamba", **{"train.epochs": 2})
    columns = tiny_store(experiment).columns()
    pairs = columns.pairs["edge_label_index"]
    assert pairs.columns.pop("edge_label") is not None
    store = type(tiny_store(experiment))(columns)
    result = fit(experiment, store, run_dir=tmp_path / "run")
    # without wrong pairs the loss would fall to 0 at once, and stay finite with them
    assert 0.1 < result.scores["train"]["loss"] < 10
    assert 0 < result.test <= 1


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_split_without_graphs_or_labels_is_rejected_before_anything_is_trained(
    tmp_path: Path, split: str
) -> None:
    experiment = tiny_experiment()
    columns = tiny_store(experiment).columns()
    number = SPLITS[split]
    others = columns.split.where(columns.split != number, (number + 1) % 3)
    empty = GraphStore(replace(columns, split=others))
    with pytest.raises(UserError, match=f"{split} must hold graphs, and all 24 are in other"):
        fit(experiment, empty, run_dir=tmp_path / "run")
    if split != "test":
        unlabelled = without_labels(tiny_store(experiment), split)
        with pytest.raises(UserError, match=rf"{split} must hold labels, and its \d+ graphs have"):
            fit(experiment, unlabelled, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("schedule", ["cosine", "plateau"])
def test_a_test_set_without_labels_has_no_loss_and_does_not_stop_the_run(
    tmp_path: Path, schedule: str
) -> None:
    experiment = tiny_experiment(**{"optim.schedule": schedule, "optim.patience": 1})
    store = without_labels(tiny_store(experiment), "test")
    result = fit(experiment, store, run_dir=tmp_path / "run")
    assert (result.stop_reason, result.epochs) == ("finished", 3)
    assert result.best_epoch >= 0
    for row in read_rows(tmp_path / "run" / "metrics.csv"):
        losses = {name: value for name, value in row.items() if name.endswith("_loss")}
        assert [name for name, value in losses.items() if math.isnan(value)] == ["test_loss"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_training_loss_is_weighed_by_labels(tmp_path: Path, accumulate: int) -> None:
    """Next to nothing is learned, so that losses of the same weights can be compared."""
    still = {**SETTLED, "optim.lr": 1e-30, "train.epochs": 1}
    experiment = tiny_experiment("peptides-struct/graph-mamba", **still)
    store, notes = with_gaps(tiny_store(experiment), "graph"), Notes()
    options = RunOptions(accumulate_grad_batches=accumulate)
    fit(experiment, store, options, tmp_path / "run", notes)
    state = load_weights(tmp_path / "run" / "best.safetensors")
    whole = evaluate(build_model(state), store, "train", batch_size=14)
    assert notes.epochs[0].train_loss == pytest.approx(whole["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, s: fit(e, s, RunOptions(devices=10_000)), "devices must be at most the .* here"),
        (lambda e, s: fit(e, s, RunOptions(cuda_graph="on", device="cpu")), "needs a GPU, .* 'on'"),
        (lambda e, s: fit(e, s, run_dir="absent", resume=True), "must hold a run to resume"),
        (lambda e, s: fit(e, s, run_dir=Path(__file__) / "run"), "run_dir must be writable, got"),
        (lambda e, s: fit(e, s, resume=True), "run_dir must be given to resume a run, got None"),
        (lambda e, s: fit_seeds(e, s, seeds=[1, 1]), "seeds must be given, each once"),
        (lambda *_: fit("patern"), "no experiment 'patern'.*did you mean 'pattern'"),
        (lambda *_: fit(), "experiment must be a preset, a YAML file or an Experiment, got None"),
        (lambda e, s: fit(e, s, data=DataOptions()), "data must be left out without graphs of PyG"),
        (lambda *_: open_data("pattern"), "experiment must be Experiment, got 'pattern'"),
        (lambda e, s: fit((e, s)), "experiment must be Experiment, got tuple"),
        (lambda e, s: fit(e, [s]), "graph 0 must be"),
        (lambda e, s: fit(e, s, {"seed": 1}), "options must be RunOptions or None, got dict"),
        (lambda e, s: fit_seeds(e, s, seeds=3), "seeds must be Sequence, got 3: a list, such as"),
        (lambda e, s: fit_seeds(e, s, seeds=[0, -1]), "seed must be at least 0 and less"),
        (lambda e, s: fit_seeds(e, s, seeds=[0.5]), "seed must be int, got 0.5"),
        (lambda *_: load_pretrained(None), "name must be str, got None"),
        (lambda *_: GraphMambaBlock(8, "degree"), "policy must be OrderPolicy, got 'degree'"),
    ],
)
def test_slips_in_python_are_reported_and_leave_nothing(
    call: Callable[[Experiment, GraphStore], object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        call(EXPERIMENT, STORE)
    assert not [*tmp_path.iterdir()]


def test_a_rejected_run_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    fit_seeds(EXPERIMENT, STORE, run_dir=folder, seeds=[0, 1])
    before = files_in(folder)
    other = RunOptions(precision="bf16-mixed")
    with pytest.raises(UserError, match="precision must be '32-true', as when the run was started"):
        fit_seeds(EXPERIMENT, STORE, other, folder, resume=True, seeds=[0, 1, 2])
    more = tiny_store(EXPERIMENT, train=20)
    with pytest.raises(UserError, match="graphs must be the same as in the saved state"):
        fit_seeds(EXPERIMENT, more, RunOptions(max_time=9.0), folder, resume=True, seeds=[2])
    assert files_in(folder) == before
    fit_seeds(EXPERIMENT, STORE, run_dir=folder, resume=True, seeds=[0, 1])
    assert seeds_in(folder) == [0, 1]


def test_a_single_run_is_no_series_and_a_series_no_single_run(tmp_path: Path) -> None:
    fit(EXPERIMENT, STORE, run_dir=tmp_path / "one")
    fit_seeds(EXPERIMENT, STORE, run_dir=tmp_path / "several", seeds=[0])
    before = files_in(tmp_path)
    with pytest.raises(UserError, match=r"hold a series of seeds .*one' holds a single run"):
        fit_seeds(EXPERIMENT, STORE, run_dir=tmp_path / "one", resume=True, seeds=[5])
    with pytest.raises(UserError, match=r"hold a single run .*several' holds a series of seeds"):
        fit(EXPERIMENT, STORE, run_dir=tmp_path / "several", resume=True)
    assert files_in(tmp_path) == before


def test_the_time_is_that_of_all_seeds_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, given = [100.0], []

    def timed(fabric: Any, made: Any, store: Any, options: RunOptions, *others: Any) -> Any:
        given.append(options.max_time)
        clock[0] += 10.0
        return run_fit(fabric, made, store, replace(options, max_time=1e9), *others)

    monkeypatch.setattr(fit_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(fit_module, "run_fit", timed)
    options = RunOptions(max_time=25.0)
    fit_seeds(EXPERIMENT, STORE, options, tmp_path / "runs", seeds=[0, 1, 2, 3])
    assert given == [25.0, 15.0, 5.0, 0.0]

"""What a run looks like on a terminal and in a log, and what its results look like."""

import io
import itertools
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from graphmamba.commands.printing import results_table, scores_table
from graphmamba.reported import Score
from graphmamba.training.console import (
    Bars,
    Lines,
    bar,
    bytes_of,
    follow,
    following,
    metric_title,
    time_of,
)
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.fit import fit, fit_seeds
from graphmamba.training.predict import Predictions
from graphmamba.training.reporter import EpochRecord, StartRecord, StepRecord
from graphmamba.training.results import RunResult, SeedsResult, StopReason
from tests.helpers.runs import Notes, tiny_experiment, tiny_store


def start() -> StartRecord:
    return StartRecord(
        experiment=load_experiment("mnist"),
        options=RunOptions(seed=5),
        run_dir=Path("runs/a b"),
        metric="accuracy",
        device="cpu",
        processes=2,
        parameters=1234,
        graphs={"train": 10, "validation": 3, "test": 4},
        epochs=2,
        steps=3,
    )


def epoch(number: int, *, is_best: bool) -> EpochRecord:
    return EpochRecord(
        epoch=number,
        epochs=2,
        learning_rate=1e-3,
        train_loss=0.25,
        validation={"loss": 0.5, "accuracy": 0.75},
        test={"loss": 0.6, "accuracy": 0.625},
        is_best=is_best,
        best_epoch=0,
        train_seconds=2.0,
        seconds=3.0,
        graphs_per_second=5.0,
        memory=1 << 30,
    )


def result(seed: int = 0, accuracy: float = 0.5, stop_reason: StopReason = "finished") -> RunResult:
    return RunResult(
        run_dir=Path("runs/x"),
        seed=seed,
        metric="accuracy",
        best_epoch=0,
        scores={
            "train": {"loss": 0.25},
            "validation": {"loss": 0.5, "accuracy": 0.75},
            "test": {"loss": 0.6, "accuracy": accuracy},
        },
        epochs=2,
        stop_reason=stop_reason,
        parameters=1234,
        seconds=61.0,
        peak_memory=5 << 20,
        environment={},
    )


def run(reporter: Bars | Lines) -> None:
    reporter.on_start(start())
    for number in (1, 2, 3):
        reporter.on_step(StepRecord(0, number, 3, 4, torch.tensor(0.25)))
    reporter.on_evaluate("validation", 1, 2)
    reporter.on_epoch(epoch(0, is_best=True))
    reporter.on_epoch(epoch(1, is_best=False))
    reporter.on_end(result(stop_reason="max time"))


def shown(table: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_lines_are_short_and_count_epochs_from_one(capsys: pytest.CaptureFixture[str]) -> None:
    run(Lines())
    assert capsys.readouterr().out.splitlines() == [
        "MNIST: 10 + 3 + 4 graphs, 1,234 parameters, 2 epochs scored by accuracy, cpu x 2, seed 5, "
        "to runs/a b",
        "epoch 1/2: loss 0.2500, validation 0.7500 (best), lr 1.0e-03, 3 s, 1.0 GiB",
        "epoch 2/2: loss 0.2500, validation 0.7500, lr 1.0e-03, 3 s, 0 s left, 1.0 GiB",
        "stopped: max time; validation 0.7500, test 0.5000 at epoch 1",
    ]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_run_that_goes_on_says_from_where(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    Lines().on_start(replace(start(), first_epoch=first))
    assert ("from epoch 2" in capsys.readouterr().out) == (first == 1)


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_the_test_split_is_reported_at_the_end_alone(
    kind: type[Lines] | type[Bars], capsys: pytest.CaptureFixture[str]
) -> None:
    run(kind())
    told = [line for line in capsys.readouterr().out.splitlines() if "test" in line]
    assert [line.strip() for line in told] == [
        "stopped: max time; validation 0.7500, test 0.5000 at epoch 1"
    ]


def test_a_run_without_scores_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Lines().on_end(replace(result(), best_epoch=-1, scores={}))
    assert capsys.readouterr().out == "no epoch has a score\n"


def test_bars_name_a_folder_that_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("exp[a]", "q[/b]"):
        bars = Bars()
        bars.on_start(replace(start(), run_dir=Path(name)))
        bars.close()
        assert f"seed 5 · {name}" in " ".join(capsys.readouterr().out.split())


def test_bars_leave_a_line_an_epoch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run(Bars())
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert "10 + 3 + 4 graphs" in told
    lines = [line.strip() for line in told.splitlines() if line.startswith("epoch ")]
    assert lines == [
        "epoch 1/2 * loss 0.2500 · validation 0.7500 · lr 1.0e-03",
        "epoch 2/2   loss 0.2500 · validation 0.7500 · lr 1.0e-03",
    ]
    assert "stopped: max time" in told


def test_speed_is_reported_once_it_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(10)
    monkeypatch.setattr("graphmamba.training.console.time.monotonic", lambda: float(next(clock)))
    bars = Bars()
    bars.on_start(start())
    assert bars._progress is not None
    told = []
    for number in (1, 2, 3):
        bars.on_step(StepRecord(0, number, 3, 4, torch.tensor(0.25)))
        told.append(bars._progress.tasks[1].fields["told"])
    bars.close()
    assert told == ["loss 0.2500", "loss 0.2500 · 4 graphs/s", "loss 0.2500 · 4 graphs/s"]
    capsys.readouterr()


def test_fit_shows_its_progress_unless_it_is_not_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = tiny_experiment(**{"train.epochs": 2, "optim.warmup": 0})
    store = tiny_store(experiment)
    fit(experiment, store, run_dir=tmp_path / "silent", progress=False)
    assert capsys.readouterr().out == ""
    notes = Notes()
    fit(experiment, store, None, tmp_path / "shown", notes)
    assert len(notes.epochs) == 2
    first, task, *epochs, last = capsys.readouterr().out.splitlines()
    assert first.endswith(f"to {tmp_path / 'shown'}")
    assert task == "task: graph classification, 10 classes, metric accuracy, 14/5/5 graphs"
    assert [line.partition(":")[0] for line in epochs] == ["epoch 1/2", "epoch 2/2"]
    assert re.fullmatch(r"validation [\d.]+, test [\d.]+ at epoch [12]", last)
    fit_seeds(experiment, store, run_dir=tmp_path / "both", seeds=[0, 1])
    assert capsys.readouterr().out.count(" at epoch ") == 2


def test_bars_are_taken_away_after_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    bars = Bars()
    monkeypatch.setattr("graphmamba.training.console.Bars", lambda: bars)
    with suppress(KeyError), following(None, True, ()) as reporters:
        assert reporters == [bars]
        bars.on_start(start())
        assert bars._progress is not None
        assert bars._progress.live.is_started
        raise KeyError
    assert not bars._progress.live.is_started
    capsys.readouterr()


def test_predictions_are_passed_on_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    graph, values = torch.tensor([0, 0, 1]), torch.zeros(3, 2)
    part = Predictions("classes", ("a", "b"), graph, graph, None, values, None)
    found = [*follow(iter([part, part]), graphs=4)]
    assert [each is part for each in found] == [True, True]
    assert capsys.readouterr().out == ""


def test_a_bar_is_drawn_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_terminal in (False, True):
        if is_terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        with bar("evaluating") as tell:
            tell(1, 2)
            tell(2, 2)
        told = capsys.readouterr()
        assert told.out == ""
        assert ("evaluating" in told.err) == is_terminal


def test_one_run_has_its_scores_beside_the_published_one() -> None:
    text = shown(results_table(result(), Score(0.9842, 0.0008, "Graph-Mamba paper")))
    for seen in ("best epoch 1", "1,234 parameters", "1 min 01 s", "5 MiB", "0.9842 ± 0.0008"):
        assert seen in text
    assert "seeds" not in text


def test_several_seeds_have_mean_and_deviation() -> None:
    runs = SeedsResult(Path("runs"), (result(0, 0.5), result(1, 0.6)))
    text = shown(results_table(runs))
    assert "0.5500 ± 0.0500" in text
    assert "seeds 0, 1" in text


def test_scores_of_a_split() -> None:
    text = shown(scores_table("a on b", {"test": {"loss": 0.5, "mrr": 0.25}}))
    assert "MRR" in text
    assert "0.2500" in text


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (time_of(9.4), "9 s"),
        (time_of(61.0), "1 min 01 s"),
        (time_of(3600.0 * 26 + 120), "26 h 02 min"),
        (bytes_of(3 << 19), "2 MiB"),
        (bytes_of(3 << 30), "3.0 GiB"),
        (metric_title("mean_absolute_error"), "MAE"),
        (metric_title("mrr_filtered"), "mrr filtered"),
    ],
)
def test_numbers_read_well(made: str, wanted: str) -> None:
    assert made == wanted

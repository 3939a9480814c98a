"""What a run looks like on a terminal, in a log and to loggers."""

import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest
import torch

from graphmamba.errors import UserError
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.fit import fit, fit_seeds
from graphmamba.training.progress import (
    Bars,
    EpochRecord,
    Lines,
    StartRecord,
    StepRecord,
    bar,
    bytes_of,
    following,
    time_of,
)
from graphmamba.training.run_dir import RunResult
from tests.helpers.runs import Notes, tiny_experiment, tiny_store

START = StartRecord(
    experiment=load_experiment("mnist"),
    options=RunOptions(seed=5),
    run_dir=Path("runs/a[b]"),
    metric="accuracy",
    device="cpu",
    processes=2,
    parameters=1234,
    graphs={"train": 10, "validation": 3, "test": 4},
    epochs=2,
    steps=3,
)
EPOCH = EpochRecord(
    epoch=0,
    epochs=2,
    learning_rate=1e-3,
    train_loss=0.25,
    validation={"loss": 0.5, "accuracy": 0.75},
    test={"loss": 0.6, "accuracy": 0.625},
    is_best=True,
    best_epoch=0,
    train_seconds=2.0,
    seconds=3.0,
    graphs_per_second=5.0,
    memory=1 << 30,
)
RESULT = RunResult(
    run_dir=Path("runs/x"),
    seed=0,
    metric="accuracy",
    best_epoch=0,
    scores={split: {"loss": 0.5, "accuracy": 0.75} for split in ("validation", "test")},
    epochs=2,
    stop_reason="max time",
    parameters=1234,
    seconds=61.0,
    peak_memory=5 << 20,
    environment={},
)


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_a_run_leaves_a_line_an_epoch_and_the_test_score_at_its_end(
    kind: type[Lines], capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = kind()
    reporter.on_start(START)
    for number in (1, 2, 3):
        reporter.on_step(StepRecord(0, number, 3, 4, torch.tensor(0.25)))
    reporter.on_evaluate("validation", 1, 2)
    reporter.on_epoch(EPOCH)
    reporter.on_epoch(replace(EPOCH, epoch=1, is_best=False))
    reporter.on_end(RESULT)
    assert [line for line in capsys.readouterr().out.splitlines() if line.strip()] == [
        "MNIST: 10 + 3 + 4 graphs, 1,234 parameters, 2 epochs scored by accuracy, cpu x 2, seed 5, "
        "to runs/a[b]",
        "epoch 1/2: loss 0.2500, validation 0.7500 (best), lr 1.0e-03, 3 s, 3 s left, 1.0 GiB",
        "epoch 2/2: loss 0.2500, validation 0.7500, lr 1.0e-03, 3 s, 0 s left, 1.0 GiB",
        "stopped: max time; validation 0.7500, test 0.7500 at epoch 1",
    ]
    for first in (0, 1, 2):
        Lines().on_start(replace(START, first_epoch=first))
        assert ("from epoch 2" in capsys.readouterr().out) == (first == 1)
    reporter.on_end(replace(RESULT, best_epoch=-1, scores={}, stop_reason="finished"))
    assert capsys.readouterr().out.strip() == "no epoch has a score"


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
    with suppress(KeyError), following(None, True, ()) as reporters:
        (bars,) = reporters
        assert isinstance(bars, Bars)
        bars.on_start(START)
        assert bars._progress.live.is_started
        raise KeyError
    assert not bars._progress.live.is_started
    capsys.readouterr()


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


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (time_of(9.4), "9 s"),
        (time_of(61.0), "1 min 01 s"),
        (time_of(3600.0 * 26 + 120), "26 h 02 min"),
        (bytes_of(3 << 19), "2 MiB"),
        (bytes_of(3 << 30), "3.0 GiB"),
    ],
)
def test_numbers_read_well(made: str, wanted: str) -> None:
    assert made == wanted


EXPERIMENT = tiny_experiment(**{"train.epochs": 2})


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    notes, options = Notes(), RunOptions(loggers=("tensorboard",))
    fit(EXPERIMENT, tiny_store(EXPERIMENT), options, tmp_path / "run", notes)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(notes.epochs[0].row())
    points = events.Scalars("train_loss")
    assert [point.step for point in points] == [0, 1]
    assert [point.value for point in points] == pytest.approx(
        [record.train_loss for record in notes.epochs]
    )


def test_wandb_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = MagicMock(__spec__=True)
    run, summary = fake.init.return_value, dict[str, float]()
    run.summary = summary
    monkeypatch.setitem(sys.modules, "wandb", fake)
    notes, options = Notes(), RunOptions(loggers=("wandb",))
    result = fit(EXPERIMENT, tiny_store(EXPERIMENT), options, tmp_path / "run", notes)
    assert fake.init.call_args.kwargs["config"]["train"]["epochs"] == 2
    assert run.log.call_args_list == [call(each.row(), step=each.epoch) for each in notes.epochs]
    assert summary["best_test_accuracy"] == result.test
    run.finish.assert_called_once_with()


@pytest.mark.parametrize(("name", "extra"), [("tensorboard", "logging"), ("wandb", "wandb")])
def test_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"{name} is not installed.*graphmamba\[{extra}\]"):
        fit(EXPERIMENT, options=RunOptions(loggers=(name,)), run_dir=tmp_path / "run")

"""Other programs that show the numbers of a run."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from graphmamba.errors import UserError
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from tests.helpers.runs import Notes, tiny_experiment, tiny_store

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


class FakeRun:
    def __init__(self, **settings: object) -> None:
        self.settings, self.rows, self.summary, self.is_finished = settings, {}, {}, False

    def log(self, row: dict[str, float], step: int) -> None:
        self.rows[step] = row

    def finish(self) -> None:
        self.is_finished = True


def test_wandb_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[FakeRun] = []

    def init(**settings: object) -> FakeRun:
        runs.append(FakeRun(**settings))
        return runs[-1]

    fake = ModuleType("wandb")
    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    notes, options = Notes(), RunOptions(loggers=("wandb",))
    result = fit(EXPERIMENT, tiny_store(EXPERIMENT), options, tmp_path / "run", notes)
    (run,) = runs
    assert run.settings["config"]["train"]["epochs"] == 2
    assert run.rows == {record.epoch: record.row() for record in notes.epochs}
    assert run.summary["best_test_accuracy"] == result.test
    assert run.is_finished


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("tensorboard", "torch.utils.tensorboard", "logging"), ("wandb", "wandb", "wandb")],
)
def test_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"{name} is not installed.*graphmamba\[{extra}\]"):
        fit(EXPERIMENT, options=RunOptions(loggers=(name,)), run_dir=tmp_path / "run")

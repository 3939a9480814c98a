"""The folder of a run: its lock, its table of epochs, whole rows only, and their picture."""

import errno
import fcntl
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphmamba.errors import UserError
from graphmamba.training.fit import fit, fit_seeds
from graphmamba.training.run_dir import (
    LOCK,
    RunDirLock,
    append_row,
    cut_rows,
    draw_curves,
    read_rows,
)
from tests.helpers.processes import ROOT
from tests.helpers.runs import Notes, assert_same_run, tiny_experiment, tiny_store
from tests.helpers.typecheck import typecheck_off

EXPERIMENT = tiny_experiment(**{"train.epochs": 2})
STORE = tiny_store(EXPERIMENT)
USED = "run_dir must not be in use, and another process trains in '{}'"
HOLDER = """
import sys
from pathlib import Path
from graphmamba.training.run_dir import RunDirLock

with RunDirLock(Path(sys.argv[1])) as lock:
    lock.take()
    print("taken", flush=True)
    sys.stdin.read()
"""


def assert_held(folder: Path) -> None:
    with pytest.raises(UserError, match=USED.format(folder)), RunDirLock(folder) as lock:
        lock.take()


def test_one_at_a_time_and_no_file_is_left(tmp_path: Path) -> None:
    with RunDirLock(tmp_path) as lock:
        lock.take()
        assert_held(tmp_path)
        # one that was rejected takes nothing away
        assert_held(tmp_path)
    assert not [*tmp_path.iterdir()]
    with RunDirLock(tmp_path) as lock:
        lock.take()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        assert_held(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / LOCK).exists()
    with RunDirLock(tmp_path) as lock:
        lock.take()
        assert_held(tmp_path)


def test_a_file_that_is_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, calls = fcntl.flock, []

    def flock_too_late(handle: int, how: int) -> None:
        # who had it before lets go of it between our opening and our locking
        if not calls:
            (tmp_path / LOCK).unlink()
        calls.append(handle)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock_too_late)
    with RunDirLock(tmp_path) as lock:
        lock.take()
        assert_held(tmp_path)


def test_where_there_are_no_locks_it_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, how: int) -> None:  # noqa: ARG001
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    message = f"'{tmp_path}' lies where files cannot be locked .*No locks available"
    with RunDirLock(tmp_path) as lock, pytest.warns(UserWarning, match=message):
        lock.take()
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"run_dir must be writable, got '.*gone'"),
        RunDirLock(tmp_path / "gone") as lock,
    ):
        lock.take()


def test_a_run_that_is_under_way_is_left_alone(tmp_path: Path) -> None:
    """A run beside it that begins, or goes on, would mix its rows with those of the first."""
    folder, rejected = tmp_path / "run", []

    def intrude() -> None:
        for resume in (False, True):
            with pytest.raises(UserError, match=USED.format(folder)):
                fit(EXPERIMENT, STORE, run_dir=folder, resume=resume)
            rejected.append(resume)

    with typecheck_off():
        fit(EXPERIMENT, STORE, run_dir=folder, reporter=Notes({1: intrude, 5: intrude}))
        fit(EXPERIMENT, STORE, run_dir=tmp_path / "alone")
    assert rejected == [False, True] * 2
    assert_same_run(folder, tmp_path / "alone")
    assert not [*folder.rglob(LOCK)]


def test_a_series_that_is_under_way_is_left_alone(tmp_path: Path) -> None:
    folder, rejected = tmp_path / "runs", []

    def intrude() -> None:
        with pytest.raises(UserError, match=USED.format(folder)):
            fit_seeds(EXPERIMENT, STORE, run_dir=folder, resume=True, seeds=[7])
        with pytest.raises(UserError, match=USED.format(folder / "seed-0")):
            fit(EXPERIMENT, STORE, run_dir=folder / "seed-0", resume=True)
        rejected.append(True)

    with typecheck_off():
        result = fit_seeds(
            EXPERIMENT, STORE, run_dir=folder, reporter=Notes({2: intrude}), seeds=[0]
        )
    assert rejected == [True]
    assert [run.stop_reason for run in result.runs] == ["finished"]
    assert not [*folder.rglob(LOCK)]


ROWS = [{"epoch": epoch, "loss": 1 / (epoch + 3)} for epoch in range(4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    for row in ROWS:
        append_row(path, row)
    return path


def test_numbers_come_back_to_the_last_bit(path: Path) -> None:
    assert read_rows(path) == ROWS
    append_row(path, {"epoch": 4, "loss": math.nan})
    assert math.isnan(read_rows(path)[-1]["loss"])


def test_a_row_cut_short_is_left_out(path: Path) -> None:
    path.write_text(path.read_text()[:-3])
    assert read_rows(path) == ROWS[:-1]


@pytest.mark.parametrize("epochs", range(5))
def test_rows_of_later_epochs_are_cut(path: Path, epochs: int) -> None:
    with path.open("a") as file:
        file.write("4,0.")
    cut_rows(path, epochs)
    assert read_rows(path) == ROWS[:epochs]
    append_row(path, ROWS[0])
    assert read_rows(path) == [*ROWS[:epochs], ROWS[0]]


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    cut_rows(tmp_path / "metrics.csv", 3)
    assert read_rows(tmp_path / "metrics.csv") == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"metrics\.csv' cannot be written"):
        append_row(tmp_path / "nowhere" / "metrics.csv", ROWS[0])


def test_a_disk_that_is_full_half_way_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, text: write(handle, text[:5]))
    with pytest.raises(UserError, match="No space left on device"):
        append_row(path, {"epoch": 4, "loss": 0.125})
    assert read_rows(path) == ROWS


def write_metrics(path: Path, epochs: int) -> Path:
    for epoch in range(epochs):
        row = {"epoch": epoch, "learning_rate": 1e-3, "train_loss": 1 / (epoch + 1)}
        scores = {
            f"{split}_{name}": 0.5 for split in ("validation", "test") for name in ("loss", "mrr")
        }
        append_row(path, row | scores | {"is_best": int(epoch == 0)})
    return path


@pytest.mark.parametrize("epochs", [1, 5])
def test_a_picture_is_drawn(epochs: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    metrics = write_metrics(tmp_path / "metrics.csv", epochs)
    draw_curves(metrics, tmp_path / "curves.png", "PCQM, seed 0", "mrr")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len([*tmp_path.iterdir()]) == 2


def test_one_exploding_epoch_does_not_flatten_the_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    metrics = write_metrics(tmp_path / "metrics.csv", 6)
    metrics.write_text(metrics.read_text().replace("0.25,0.5", "0.25,1e+14"))
    drawn = []
    monkeypatch.setattr(
        "graphmamba.training.run_dir.write_figure", lambda figure, _path: drawn.append(figure)
    )
    draw_curves(metrics, tmp_path / "curves.png", "PCQM, seed 0", "mrr")
    losses, scores, _ = drawn[0].axes
    assert losses.get_ylim()[1] < 2
    assert losses.get_xlabel() == "epoch (1 value beyond the axis)"
    assert scores.get_xlabel() == "epoch"


def test_no_epoch_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match="must hold an epoch, got none"):
        draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", "nothing", "mrr")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="plots need matplotlib"):
        draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", "nothing", "mrr")

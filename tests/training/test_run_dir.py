"""The folder of a run: its lock, its table of epochs and their picture, and what it found."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmamba.errors import UserError
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.fit import fit, fit_seeds
from graphmamba.training.run_dir import (
    RunDir,
    RunResult,
    SeedsResult,
    append_row,
    cut_rows,
    draw_curves,
    read_result,
    read_rows,
)
from tests.helpers.processes import ROOT
from tests.helpers.runs import Notes, assert_same_run, tiny_experiment, tiny_store

EXPERIMENT = tiny_experiment(**{"train.epochs": 2})
STORE = tiny_store(EXPERIMENT)
USED = "run_dir must not be in use, and another process trains in '{}'"
HOLDER = """
import sys
from pathlib import Path
from typing import Any
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.run_dir import RunDir

with RunDir(Path(sys.argv[1])).kept(ProcessGroup(), resume=False):
    print("taken", flush=True)
    sys.stdin.read()
"""


def take(folder: Path) -> None:
    with RunDir(folder).kept(ProcessGroup(), resume=False):
        pass


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        for _ in range(2):
            # one that was rejected takes nothing away
            with pytest.raises(UserError, match=USED.format(tmp_path)):
                take(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    take(tmp_path)
    take(tmp_path)


def test_a_run_or_series_that_is_under_way_is_left_alone(tmp_path: Path) -> None:
    """A run beside it that begins, or goes on, would mix its rows with those of the first."""
    folder, run, rejected = tmp_path / "runs", tmp_path / "runs" / "seed-0", []

    def intrude() -> None:
        for resume in (False, True):
            with pytest.raises(UserError, match=USED.format(run)):
                fit(EXPERIMENT, STORE, run_dir=run, resume=resume)
            with pytest.raises(UserError, match=USED.format(folder)):
                fit_seeds(EXPERIMENT, STORE, run_dir=folder, resume=resume, seeds=[7])
            rejected.append(resume)

    notes = Notes({1: intrude, 5: intrude})
    result = fit_seeds(EXPERIMENT, STORE, run_dir=folder, reporter=notes, seeds=[0])
    fit(EXPERIMENT, STORE, run_dir=tmp_path / "alone")
    assert rejected == [False, True] * 2
    assert [each.stop_reason for each in result.runs] == ["finished"]
    assert_same_run(run, tmp_path / "alone")


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


@pytest.mark.parametrize("epochs", range(5))
def test_rows_of_later_epochs_and_those_cut_short_are_dropped(path: Path, epochs: int) -> None:
    with path.open("a") as file:
        file.write("4,0.")
    assert read_rows(path) == ROWS
    cut_rows(path, epochs)
    assert read_rows(path) == ROWS[:epochs]
    append_row(path, ROWS[0])
    assert read_rows(path) == [*ROWS[:epochs], ROWS[0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epoch,loss\na,b\n", "could not convert string to float"),
        (b"epoch,loss\n0\n", "shorter"),
        (b"\xff\xfe\0\n", "decode"),
        (b"epoch,loss\n1,1\n0,1\n", "each epoch once"),
        (b"epoch,loss\n0,1\n0,1\n", "each epoch once"),
    ],
)
def test_damaged_rows_are_reported_and_left(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        cut_rows(path, 2)
    assert path.read_bytes() == content
    # a pipe that nobody reads would be waited for
    path.unlink()
    cut_rows(path, 2)
    os.mkfifo(path)
    with pytest.raises(UserError, match="must be a file"):
        cut_rows(path, 2)


@pytest.mark.parametrize(
    "content",
    [
        *({"scores": each} for each in (5, {"test": 5}, {"test": {"loss": "x"}})),
        {"seed": "x"},
        '{"seed": 1}',
        "[" * 100_000,
    ],
    ids=range(6),
)
def test_results_of_other_content_are_reported(
    content: dict[str, object] | str, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_text(content if isinstance(content, str) else json.dumps(RUN.content() | content))
    with pytest.raises(UserError, match=r"results\.json' must be the results of one run"):
        read_result(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"metrics\.csv' cannot be written"):
        append_row(tmp_path / "nowhere" / "metrics.csv", ROWS[0])


def write_epochs(path: Path, losses: Sequence[float]) -> None:
    for epoch, loss in enumerate(losses):
        row = {"epoch": epoch, "learning_rate": 1e-3, "train_loss": 0.5, "validation_loss": loss}
        scores = {"validation_mrr": 0.4, "test_loss": 0.5, "test_mrr": 0.3}
        append_row(path, row | scores | {"is_best": int(epoch == 0)})


@pytest.mark.parametrize("epochs", [1, 5])
def test_a_picture_is_drawn(epochs: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_epochs(tmp_path / "metrics.csv", [0.5] * epochs)
    draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", "PCQM, seed 0", "mrr")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len([*tmp_path.iterdir()]) == 2


def test_one_exploding_epoch_does_not_flatten_the_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(
        "graphmamba.training.run_dir.write_figure", lambda figure, _path: drawn.append(figure)
    )
    write_epochs(tmp_path / "metrics.csv", (0.7, 1e14, 0.6, 0.5, math.nan, 0.4))
    draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", "PCQM, seed 0", "mrr")
    losses, scores, _ = drawn[0].axes
    assert losses.get_ylim()[1] < 2
    assert losses.get_xlabel() == "epoch (beyond the axis: 1)"
    assert scores.get_xlabel() == "epoch"


def test_no_picture_without_epochs_or_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    places = tmp_path / "metrics.csv", tmp_path / "curves.png"
    with pytest.raises(UserError, match=r"must hold an epoch, .*got none"):
        draw_curves(*places, "nothing", "mrr")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="plots need matplotlib"):
        draw_curves(*places, "nothing", "mrr")


RUN = RunResult(
    run_dir=Path("runs/one"),
    seed=0,
    metric="accuracy",
    best_epoch=2,
    scores={"train": {"loss": 0.5}, "test": {"loss": math.nan, "accuracy": 0.8}},
    epochs=3,
    stop_reason="finished",
    parameters=10,
    seconds=1.5,
    peak_memory=100,
    environment={"torch": "2"},
)


def scored(value: float) -> RunResult:
    return replace(RUN, scores={"test": {"accuracy": value}})


def test_content_is_strict_json_and_comes_back(tmp_path: Path) -> None:
    written = json.dumps(RUN.content(), allow_nan=False)
    assert json.loads(written)["scores"]["test"] == {"loss": None, "accuracy": 0.8}
    (tmp_path / "results.json").write_text(written)
    again = read_result(tmp_path / "results.json")
    assert (again.run_dir, again.test) == (tmp_path, 0.8)
    assert math.isnan(again.scores["test"]["loss"])
    assert math.isnan(replace(RUN, scores={}).test)


def test_mean_and_deviation_are_those_of_published_tables() -> None:
    runs = SeedsResult(Path("runs"), tuple(map(scored, (0.7, 0.8, 0.9))))
    # divided by the number of runs, not by one less
    expected = {"mean": 0.8, "deviation": float(np.std([0.7, 0.8, 0.9]))}
    found = {"mean": runs.mean("test", "accuracy"), "deviation": runs.deviation("test", "accuracy")}
    assert found == pytest.approx(expected)
    assert runs.content()["scores"]["test"]["accuracy"] == found


def test_runs_that_are_not_done_count_only_where_there_are_no_others() -> None:
    stopped = replace(scored(0.5), seed=5, stop_reason="max time")
    none = replace(stopped, scores={})
    for other in (stopped, none):
        mixed = SeedsResult(Path("runs"), (scored(0.7), other, scored(0.9)))
        written = json.loads(json.dumps(mixed.content(), allow_nan=False))
        assert (len(written["seeds"]), len(written["counted"])) == (3, 2)
        assert written["scores"]["test"]["accuracy"]["mean"] == pytest.approx(0.8)
    assert SeedsResult(Path("runs"), (none, stopped)).counted == (stopped,)
    assert SeedsResult(Path("runs"), (none,)).content()["scores"] == {}

"""A run that was stopped anywhere goes on as if nothing had happened."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmamba import atomic
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.checkpoint import read_tensors, write_tensors
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.run_dir import read_result, read_rows
from tests.helpers.processes import ROOT
from tests.helpers.runs import Notes, assert_same_run, send, tiny_experiment, tiny_store
from tests.helpers.typecheck import typecheck_off
from tests.training.test_step import SETTLED

# Dropout and ties both follow the model's own seed; the head would draw from torch's generator.
EXPERIMENT = tiny_experiment(**{"model.dropout": 0.3})
STORE = tiny_store(EXPERIMENT)
STEPS = 12
ALWAYS = RunOptions(checkpoint_every=0.0)


class CrashError(Exception):
    pass


def crash() -> None:
    raise CrashError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    fit(EXPERIMENT, STORE, run_dir=folder)
    return folder


@settings(max_examples=6)
@given(crashes=st.lists(st.integers(1, STEPS), min_size=1, max_size=2))
def test_a_crash_at_any_step_changes_no_bit(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, crashes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("crash") / "run"
    with typecheck_off():
        for number, step in enumerate(crashes):
            with contextlib.suppress(CrashError):
                fit(EXPERIMENT, STORE, ALWAYS, folder, Notes({step: crash}), resume=number > 0)
        fit(EXPERIMENT, STORE, ALWAYS, folder, resume=True)
    assert_same_run(folder, whole)


KILLED = """
import os, signal, sys
from graphmamba import atomic
from graphmamba.training.fit import fit
from graphmamba.training.experiment import RunOptions
from tests.helpers.runs import Notes, send, tiny_experiment, tiny_store

kill, flush = send(signal.SIGKILL), atomic.flush
experiment = tiny_experiment(**{"model.dropout": 0.3})
store = tiny_store(experiment)

def run(folder, what, number):
    left = [number]

    def flush_or_die(path):
        left[0] -= path.name.startswith(".state")
        if what == "write" and left[0] == 0:
            os.truncate(path, path.stat().st_size // 2)
            kill()
        flush(path)

    atomic.flush = flush_or_die
    notes = Notes({number: kill} if what == "step" else {})
    is_begun = os.path.exists(folder)
    options = RunOptions(checkpoint_every=0.0)
    fit(experiment, store, options, folder, notes, resume=is_begun, progress=False)

for line in sys.stdin:
    folder, what, number = line.split()
    child = os.fork()
    if not child:
        run(folder, what, int(number))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks a process for each line, which is killed at a step or while it writes its state."""


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen[str]]:
    # threads would not be there after a fork
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    ) as process:
        yield process


MOMENTS = st.tuples(st.sampled_from(["step", "write"]), st.integers(1, STEPS))


@settings(max_examples=3)
@given(moments=st.lists(MOMENTS, min_size=1, max_size=2))
def test_a_killed_process_changes_no_bit(
    whole: Path,
    killer: subprocess.Popen[str],
    tmp_path_factory: pytest.TempPathFactory,
    moments: list[tuple[str, int]],
) -> None:
    folder = tmp_path_factory.mktemp("killed") / "run"
    assert killer.stdin is not None
    assert killer.stdout is not None
    for number, (what, count) in enumerate(moments):
        killer.stdin.write(f"{folder} {what} {count}\n")
        killer.stdin.flush()
        # the second time there may be fewer steps left
        allowed = {-signal.SIGKILL, 0} if number else {-signal.SIGKILL}
        assert int(killer.stdout.readline()) in allowed
    with typecheck_off():
        fit(EXPERIMENT, STORE, ALWAYS, folder, resume=True)
    assert_same_run(folder, whole)


@pytest.mark.parametrize(
    ("number", "stop_reason", "step"),
    # the last step of an epoch included: four make one
    [(signal.SIGTERM, "signal", 1), (signal.SIGTERM, "signal", 4), (signal.SIGINT, "interrupt", 6)],
)
def test_a_signal_saves_and_ends_cleanly_at_any_step(
    whole: Path, tmp_path: Path, number: int, stop_reason: str, step: int
) -> None:
    handler = signal.getsignal(number)
    result = fit(EXPERIMENT, STORE, run_dir=tmp_path / "run", reporter=Notes({step: send(number)}))
    assert (result.stop_reason, result.epochs, result.is_done) == (stop_reason, step // 4, False)
    assert signal.getsignal(number) == handler
    again = Notes()
    fit(EXPERIMENT, STORE, run_dir=tmp_path / "run", reporter=again, resume=True)
    assert len(again.steps) == STEPS - step
    assert_same_run(tmp_path / "run", whole)


def test_running_out_of_time_saves_and_ends_cleanly(whole: Path, tmp_path: Path) -> None:
    options, parts = RunOptions(max_time=0.0), 0
    result = fit(EXPERIMENT, STORE, options, tmp_path / "run")
    assert result.stop_reason == "max time"
    while not result.is_done and parts < STEPS:
        parts += 1
        result = fit(EXPERIMENT, STORE, options, tmp_path / "run", resume=True)
    # one step in each part, but for the last one of an epoch, which is scored before the next
    assert parts > 5
    assert_same_run(tmp_path / "run", whole)


def test_rows_after_the_saved_state_are_written_once(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        fit(EXPERIMENT, STORE, ALWAYS, tmp_path / "run", Notes({6: crash}))
    with (tmp_path / "run" / "metrics.csv").open("a") as file:
        file.write("1,0.5,0.5,0.5,0.5,0.5,0.5,0,1,1,1,1\n2,0.5,0.")
    fit(EXPERIMENT, STORE, ALWAYS, tmp_path / "run", resume=True)
    assert [row["epoch"] for row in read_rows(tmp_path / "run" / "metrics.csv")] == [0, 1, 2]
    assert_same_run(tmp_path / "run", whole)


def test_a_run_that_was_killed_before_its_first_state_begins_again(
    whole: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_bytes((whole / "config.yaml").read_bytes())
    fit(EXPERIMENT, STORE, run_dir=tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


def test_a_run_that_is_done_stays_as_it_is(whole: Path) -> None:
    names = (
        "best.safetensors", "config.yaml", "last/state.safetensors", "metrics.csv", "results.json",
    )  # fmt: skip
    before = {name: (whole / name).read_bytes() for name in names}
    found = read_result(whole / "results.json")
    notes, options = Notes(), RunOptions(max_time=100.0)
    result = fit(EXPERIMENT, STORE, options, whole, reporter=notes, resume=True)
    assert result.stop_reason == "finished"
    assert notes.results == [result] == [found]
    assert not notes.steps
    assert {name: (whole / name).read_bytes() for name in before} == before


def test_a_run_that_is_done_and_lost_its_rows_says_what_it_found(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmamba.training.fit.can_draw", lambda: True)
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").unlink()
    found = read_result(tmp_path / "run" / "results.json")
    again = fit(EXPERIMENT, STORE, run_dir=tmp_path / "run", resume=True)
    assert replace(again, run_dir=found.run_dir) == found


def test_a_run_without_its_state_is_not_begun_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "last")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match=r"state\.safetensors' is missing, so the run in"):
        fit(EXPERIMENT, STORE, run_dir=folder, resume=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_state_with_the_generator_of_a_gpu_goes_on_without_one(
    whole: Path, tmp_path: Path
) -> None:
    folder, options = tmp_path / "run", RunOptions(device="cpu")
    fit(EXPERIMENT, STORE, replace(options, max_time=0.0), folder)
    path = folder / "last" / "state.safetensors"
    tensors, about = read_tensors(path)
    write_tensors(path, {**tensors, "generator.cuda": torch.ones(1, 16).byte()}, about)
    fit(EXPERIMENT, STORE, options, folder, resume=True)
    assert_same_run(folder, whole)


def only_right_pairs(experiment: Experiment) -> GraphStore:
    """Wrong ones are drawn by the number of steps that the run has taken in all."""
    columns = tiny_store(experiment).columns()
    columns.pairs["edge_label_index"].columns.clear()
    return GraphStore(columns)


@pytest.mark.parametrize(
    ("name", "overrides", "store_of"),
    [
        (
            "mnist/graph-mamba",
            {"optim.schedule": "plateau", "optim.patience": 1, "train.epochs": 5},
            tiny_store,
        ),
        ("mnist/graph-mamba", {"head.dropout": 0.3}, tiny_store),
        ("pcqm-contact/graph-mamba", SETTLED, only_right_pairs),
    ],
    ids=["plateau", "dropout of the head", "wrong pairs"],
)
def test_what_else_a_step_depends_on_goes_on_too(
    name: str,
    overrides: dict[str, object],
    store_of: Callable[[Experiment], GraphStore],
    tmp_path: Path,
) -> None:
    experiment = tiny_experiment(name, **overrides)
    store = store_of(experiment)
    fit(experiment, store, run_dir=tmp_path / "whole")
    rates = {row["learning_rate"] for row in read_rows(tmp_path / "whole" / "metrics.csv")}
    assert len(rates) > 1
    with pytest.raises(CrashError):
        fit(experiment, store, ALWAYS, tmp_path / "run", Notes({9: crash}))
    fit(experiment, store, ALWAYS, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_the_time_of_earlier_parts_counts(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit(EXPERIMENT, STORE, RunOptions(max_time=0.0), folder)
    path = folder / "last" / "state.safetensors"
    tensors, about = read_tensors(path)
    write_tensors(path, tensors, {**about, "progress": {**about["progress"], "seconds": 1000.0}})
    assert 1000 < fit(EXPERIMENT, STORE, run_dir=folder, resume=True).seconds < 2000


@pytest.mark.parametrize("writes", [2, 5, 9])
def test_a_full_disk_leaves_the_saved_state_intact(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    folder = tmp_path / "run"
    left = [writes]
    flush = atomic.flush

    def full(path: Path) -> None:
        # by now the file is there, under its other name, and perhaps cut short
        left[0] -= path.name.startswith(".state")
        if left[0] < 0:
            raise OSError(28, "No space left on device", str(path))
        flush(path)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "flush", full)
        with pytest.raises(UserError, match=r"No space left on device.*before still is"):
            fit(EXPERIMENT, STORE, ALWAYS, folder)
    assert [file.name for file in (folder / "last").iterdir()] == ["state.safetensors"]
    read_tensors(folder / "last" / "state.safetensors")
    fit(EXPERIMENT, STORE, ALWAYS, folder, resume=True)
    assert_same_run(folder, whole)


def changed(**train: object) -> Experiment:
    return replace(EXPERIMENT, train=replace(EXPERIMENT.train, **train))


@pytest.mark.parametrize(
    ("experiment", "options", "train", "message"),
    [
        (changed(epochs=9), {}, 14, "train.epochs must be 3, as when the run was started, got 9"),
        (tiny_experiment(), {}, 14, r"model.dropout must be 0.3, .* got 0.0"),
        (EXPERIMENT, {"seed": 1}, 14, "seed must be 0, as when the run was started, got 1"),
        (EXPERIMENT, {"accumulate_grad_batches": 2}, 14, "accumulate_grad_batches must be 1, .* 2"),
        (EXPERIMENT, {}, 20, "graphs must be the same as in the saved state, 14"),
    ],
)
def test_resuming_another_run_is_rejected(
    whole: Path, experiment: Experiment, options: dict[str, int], train: int, message: str
) -> None:
    store = tiny_store(EXPERIMENT, train=train)
    with pytest.raises(UserError, match=message):
        fit(experiment, store, RunOptions(**options), whole, resume=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _content: b"nothing",
        lambda content: content.replace(rb"\"taken\": 12", rb"\"taken\": 11"),
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    ],
    ids=["all of it", "an entry", "a number"],
)
def test_a_state_that_was_changed_is_named(
    whole: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    state = shutil.copytree(whole, tmp_path / "run") / "last" / "state.safetensors"
    before = state.read_bytes()
    state.write_bytes(damage(before))
    assert state.read_bytes() != before
    told = r"state\.safetensors' (is corrupt|must hold all that was written)"
    with pytest.raises(UserError, match=told):
        fit(EXPERIMENT, STORE, run_dir=tmp_path / "run", resume=True)


def test_a_best_epoch_is_in_the_state_at_once(tmp_path: Path) -> None:
    made, never = tiny_experiment(), RunOptions(checkpoint_every=1e9)
    with pytest.raises(CrashError):
        fit(made, tiny_store(made), never, tmp_path / "run", Notes({5: crash}))
    _, about = read_tensors(tmp_path / "run" / "last" / "state.safetensors")
    assert about["progress"]["epoch"] == 1
    assert about["progress"]["best"]["epoch"] == 0

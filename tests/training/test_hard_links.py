"""Run directories with hard links, or with only some files of a run."""

import os
from pathlib import Path

import pytest

from graphmamba.errors import UserError
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit, fit_seeds
from graphmamba.training.run_dir import read_rows
from tests.helpers.runs import tiny_experiment, tiny_store

EXPERIMENT = tiny_experiment(**{"train.epochs": 1})


@pytest.fixture(autouse=True)
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmamba.training.fit.can_draw", lambda: False)


def test_a_resumed_run_leaves_hard_links_to_its_files_alone(tmp_path: Path) -> None:
    run, copy, store = tmp_path / "run", tmp_path / "copy", tiny_store(EXPERIMENT)
    two = tiny_experiment(**{"train.epochs": 2})
    fit(two, store, RunOptions(max_time=0.0), run)
    while len(read_rows(run / "metrics.csv")) < 1:
        fit(two, store, RunOptions(max_time=0.0), run, resume=True)
    for path in [each for each in run.rglob("*") if each.is_file()]:
        place = copy / path.relative_to(run)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, place)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    fit(two, store, run_dir=run, resume=True)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["best.safetensors", "results.json", "metrics.csv", "last"])
def test_a_directory_with_some_files_of_a_run_is_not_overwritten(name: str, tmp_path: Path) -> None:
    store, run = tiny_store(EXPERIMENT), tmp_path / "runs" / "seed-0"
    fit_seeds(EXPERIMENT, store, run_dir=run.parent, seeds=[0])
    for path in [run / "config.yaml", *run.glob("*")]:
        if path.name != name and path.exists():
            path.rename(tmp_path / path.name)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} | {
        run / ".lock": b""
    }
    with pytest.raises(UserError, match="run_dir must hold no run yet"):
        fit(EXPERIMENT, store, run_dir=run)
    # a resumed series must not take it for a seed that has not been started
    with pytest.raises(UserError):
        fit_seeds(EXPERIMENT, store, run_dir=run.parent, resume=True, seeds=[0])
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

"""A series of seeds goes on, grows, and bears what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphmamba.errors import UserError
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.fit_seeds import fit_seeds
from graphmamba.training.run_dir import read_config
from tests.helpers.runs import Notes, send, tiny_experiment, tiny_store
from tests.helpers.typecheck import typecheck_off

EXPERIMENT = tiny_experiment(**{"recipe.epochs": 1})
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


def test_a_refusal_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    fit_seeds(EXPERIMENT, STORE, folder=folder, seeds=[0, 1])
    before = files_in(folder)
    other = RunOptions(precision="bf16-mixed")
    with pytest.raises(UserError, match="precision must be '32-true', as when the run was started"):
        fit_seeds(EXPERIMENT, STORE, other, folder, resume=True, seeds=[0, 1, 2])
    more = tiny_store(EXPERIMENT, train=20)
    with pytest.raises(UserError, match="graphs must be the same as in the saved state"):
        fit_seeds(EXPERIMENT, more, RunOptions(max_time=9.0), folder, resume=True, seeds=[2])
    assert files_in(folder) == before
    fit_seeds(EXPERIMENT, STORE, folder=folder, resume=True, seeds=[0, 1])
    assert seeds_in(folder) == [0, 1]


def test_what_is_refused_at_its_beginning_can_begin_there_later(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="validation must hold graphs"):
        fit_seeds(EXPERIMENT, tiny_store(EXPERIMENT, others=0), folder=tmp_path / "runs", seeds=[0])
    fit_seeds(EXPERIMENT, STORE, folder=tmp_path / "runs", seeds=[0])
    assert seeds_in(tmp_path / "runs") == [0]


def test_seeds_are_added_to_those_of_the_series(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    first = fit_seeds(EXPERIMENT, STORE, folder=folder, seeds=[4, 1])
    result = fit_seeds(EXPERIMENT, STORE, folder=folder, resume=True, seeds=[2, 1])
    assert [run.seed for run in result.runs] == [4, 1, 2]
    assert [run.content() for run in result.runs[:2]] == [run.content() for run in first.runs]
    assert seeds_in(folder) == [4, 1, 2]


def test_a_series_that_goes_on_loses_no_row_when_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    fit_seeds(EXPERIMENT, STORE, folder=folder, seeds=[0])
    notes = Notes({1: send(15)})
    result = fit_seeds(EXPERIMENT, STORE, folder=folder, reporter=notes, resume=True, seeds=[1, 2])
    assert [run.ending for run in result.runs] == ["finished", "signal"]
    assert read_config(folder).seeds == (0, 1, 2)
    fit_seeds(EXPERIMENT, STORE, folder=folder, resume=True, seeds=[0])
    assert seeds_in(folder) == [0, 1, 2]


def test_a_row_that_fails_leaves_those_that_are_done(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    fit_seeds(EXPERIMENT, STORE, folder=folder, seeds=[0, 1])
    (folder / "seed-1" / "last" / "state.safetensors").write_bytes(b"nothing")
    table = (folder / "results.json").read_bytes()
    with pytest.raises(UserError, match="is corrupt"):
        fit_seeds(EXPERIMENT, STORE, folder=folder, resume=True, seeds=[0, 1])
    assert (folder / "results.json").read_bytes() == table


def test_a_single_run_is_no_series_and_a_series_no_single_run(tmp_path: Path) -> None:
    fit(EXPERIMENT, STORE, folder=tmp_path / "one")
    fit_seeds(EXPERIMENT, STORE, folder=tmp_path / "several", seeds=[0])
    before = files_in(tmp_path)
    with pytest.raises(UserError, match=r"seeds must be added to a series .*one' holds a single"):
        fit_seeds(EXPERIMENT, STORE, folder=tmp_path / "one", resume=True, seeds=[5])
    with pytest.raises(
        UserError, match=r"folder must hold a single run, .*several' holds a series"
    ):
        fit(EXPERIMENT, STORE, folder=tmp_path / "several", resume=True)
    assert files_in(tmp_path) == before

"""What a run takes along when it goes on, and what tells it from another one."""

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training import fit_seeds as series
from graphmamba.training.experiment import RunOptions
from graphmamba.training.files import read_tensors
from graphmamba.training.fit import fit, run_fit
from graphmamba.training.fit_seeds import fit_seeds
from graphmamba.training.generators import (
    generator_tensors,
    generator_words,
    own_generators,
    restore_generators,
)
from graphmamba.training.identity import identity_of
from graphmamba.training.own_graphs import take_graphs
from graphmamba.training.predict import _spread
from graphmamba.training.results import deviation_of
from tests.helpers.runs import Notes, assert_same_run, tiny_experiment, tiny_store
from tests.training.test_own_graphs import experiment, rings
from tests.training.test_resume import ALWAYS, CrashError, crash
from tests.training.test_step import SETTLED


def test_wrong_pairs_go_on_where_they_stopped(tmp_path: Path) -> None:
    """They are drawn by the number of steps that the run has taken in all."""
    made = tiny_experiment("pcqm-contact/graph-mamba", **SETTLED)
    columns = tiny_store(made).columns()
    columns.pairs["edge_label_index"].columns.clear()
    store = GraphStore(columns)
    fit(made, store, folder=tmp_path / "whole")
    with pytest.raises(CrashError):
        fit(made, store, ALWAYS, tmp_path / "run", Notes({6: crash}))
    fit(made, store, ALWAYS, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_best_epoch_is_in_the_state_at_once(tmp_path: Path) -> None:
    made, never = tiny_experiment(), RunOptions(checkpoint_every=1e9)
    with pytest.raises(CrashError):
        fit(made, tiny_store(made), never, tmp_path / "run", Notes({5: crash}))
    _, about = read_tensors(tmp_path / "run" / "last" / "state.safetensors")
    assert about["progress"]["epoch"] == 1
    assert about["progress"]["best"]["epoch"] == 0


def draws() -> list[float]:
    return [torch.rand(()).item(), float(np.random.rand()), random.random()]  # noqa: NPY002


def test_all_generators_are_put_back() -> None:
    before = generator_tensors(), generator_words()
    first = draws()
    restore_generators(*before)
    assert draws() == first
    restore_generators(*before)
    with own_generators(3):
        inside = draws()
    assert draws() == first
    assert all(one != other for one, other in zip(inside, first, strict=True))


def test_the_time_is_that_of_all_seeds_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, given = [100.0], []

    def timed(fabric: Any, made: Any, store: Any, options: RunOptions, *others: Any) -> Any:
        given.append(options.max_time)
        clock[0] += 10.0
        return run_fit(fabric, made, store, replace(options, max_time=1e9), *others)

    monkeypatch.setattr(series, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(series, "run_fit", timed)
    made = tiny_experiment(**{"recipe.epochs": 1})
    options = RunOptions(max_time=25.0)
    fit_seeds(made, tiny_store(made), options, tmp_path / "runs", seeds=[0, 1, 2, 3])
    assert given == [25.0, 15.0, 5.0, 0.0]


def test_graphs_in_other_parts_are_other_graphs(tmp_path: Path) -> None:
    made, store = take_graphs(rings(), experiment())
    assert store.split is not None
    other = GraphStore.from_tables(store.tables, store.split.roll(1), store.source)
    assert identity_of(made, store) != identity_of(made, other)
    fit(made, store, RunOptions(max_time=0.0), tmp_path / "run")
    with pytest.raises(UserError, match=r"graphs must be those of the training|must be the same"):
        fit(made, other, folder=tmp_path / "run", resume=True)


def test_deviations_are_divided_by_the_number_of_values() -> None:
    values = [1.0, 2.0, 6.0]
    expected = float(np.std(values))
    assert deviation_of(values) == pytest.approx(expected)
    spread = _spread([torch.tensor([[value]]) for value in values])
    assert spread is not None
    assert float(spread) == pytest.approx(expected)

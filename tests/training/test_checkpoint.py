"""A state or a table of epochs that is damaged is told in one line; what processes of runs draw."""

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.training.checkpoint import (
    generator_tensors,
    generator_words,
    own_generators,
    process_seed,
    restore_generators,
)
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.run_dir import read_rows
from graphmamba.training.weights import read_tensors, write_tensors
from tests.helpers.runs import Notes, assert_same_run, send, tiny_experiment, tiny_store
from tests.helpers.typecheck import typecheck_off

EXPERIMENT = tiny_experiment(**{"optim.schedule": "plateau"})
STATE = Path("last") / "state.safetensors"
Damage = Callable[[dict[str, Tensor], dict[str, Any]], object]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    fit(EXPERIMENT, tiny_store(EXPERIMENT), run_dir=folder, reporter=Notes({6: send(15)}))
    return folder


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def first(tensors: dict[str, Tensor], prefix: str) -> str:
    return next(name for name in tensors if name.startswith(prefix) and tensors[name].dim())


DAMAGES: dict[str, Damage] = {
    "short NumPy state": lambda _, about: about["generators"].update(numpy=[1]),
    "huge words": lambda _, about: about["generators"]["numpy"].__setitem__(1, [2**70] * 624),
    "short torch state": lambda tensors, _: tensors.update(
        {"generator.torch": torch.zeros(1, 5, dtype=torch.uint8)}
    ),
    "one sum": lambda tensors, _: tensors.update(sums=torch.tensor(5.0)),
    "sums of NaN": lambda tensors, _: tensors.update(sums=torch.full((1, 2), torch.nan)),
    "optimizer.x": lambda tensors, _: tensors.update({"optimizer.x.y": torch.ones(1)}),
    "optimizer.999": lambda tensors, _: tensors.update({"optimizer.999.step": torch.ones(())}),
    "short moment": lambda tensors, _: tensors.update(
        {first(tensors, "optimizer."): torch.ones(1, 1, 1)}
    ),
    "moment of another type": lambda tensors, _: tensors.update(
        {first(tensors, "optimizer."): tensors[first(tensors, "optimizer.")].bool()}
    ),
    "weights of another type": lambda tensors, _: tensors.update(
        {first(tensors, "model."): tensors[first(tensors, "model.")].bool()}
    ),
    "lost moment": lambda tensors, _: tensors.pop(first(tensors, "optimizer.")),
    "rate x": lambda _, about: about["schedule"].update(rate="x"),
    "no rate": lambda _, about: about["schedule"].update(rate=None),
    "epoch x": lambda _, about: about["progress"].update(epoch="x"),
    "epoch -1": lambda _, about: about["progress"].update(epoch=-1),
    "epoch 0": lambda _, about: about["progress"].update(epoch=0),
    "seconds NaN": lambda _, about: about["progress"].update(seconds=float("nan")),
    "progress 5": lambda _, about: about.update(progress=5),
    "experiment 5": lambda _, about: about.update(experiment=5),
    "best without a tensor": lambda tensors, _: tensors.pop(first(tensors, "best.")),
    "best of another shape": lambda tensors, _: tensors.update(
        {first(tensors, "best."): torch.ones(1, 1, 1)}
    ),
    "best of all tensors": lambda tensors, _: tensors.update({"best.more": torch.ones(1)}),
    "best epoch 99": lambda _, about: about["progress"]["best"].update(epoch=99),
    "best score x": lambda _, about: about["progress"]["best"].update(value="x"),
    "best scores 5": lambda _, about: about["progress"]["best"].update(scores=5),
    "model without a tensor": lambda tensors, _: tensors.pop(first(tensors, "model.")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_state_is_rejected_and_nothing_overwritten(
    stopped: Path, tmp_path: Path, damage: Damage
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    tensors, about = read_tensors(folder / STATE)
    damage(tensors, about)
    write_tensors(folder / STATE, tensors, about)
    before = contents(folder)
    with pytest.raises(UserError) as failure, typecheck_off():
        fit(EXPERIMENT, tiny_store(EXPERIMENT), run_dir=folder, resume=True)
    assert "\n" not in str(failure.value)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("old", "new", "dropped"),
    [
        (b"\n0,", b"\n\n0,", "1 of its lines dropped .2."),
        (b"\n0,", b"\n\0\0\0\0\n0,", "1 of its lines dropped .2."),
        (b"\n0,", b"\nSome text,\nin a block.\n\xff\xfe\n0,", "3 of its lines dropped .2, 3, 4."),
        (b"\n0,", b"\n0,1\n0,", "1 of its lines dropped .2."),
        (b"\n0,", b"\nnan,", "1 of its lines dropped .2."),
        (b"epoch", b"epo\0h", "1 of its lines dropped .2."),
    ],
)
def test_damaged_rows_are_dropped_and_said(
    stopped: Path, tmp_path: Path, old: bytes, new: bytes, dropped: str
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    for place in (whole, folder):
        shutil.copytree(stopped, place)
    path = folder / "metrics.csv"
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(UserError, match="must hold a number in each column, not so in line 2"):
        read_rows(path)
    fit(EXPERIMENT, tiny_store(EXPERIMENT), run_dir=whole, resume=True)
    with pytest.warns(UserWarning, match=f"metrics.csv' is damaged: {dropped}"):
        fit(EXPERIMENT, tiny_store(EXPERIMENT), run_dir=folder, resume=True)
    is_lost = b"nan," in new or b"epo" in new
    assert [row["epoch"] for row in read_rows(path)] == [0, 1, 2][is_lost:]
    if not is_lost:
        assert_same_run(folder, whole)


def test_a_run_that_is_done_and_lost_its_rows_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmamba.training.fit.can_draw", lambda: True)
    store, options = tiny_store(EXPERIMENT), RunOptions(seed=1)
    found = fit(EXPERIMENT, store, options, tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").unlink()
    assert fit(EXPERIMENT, store, options, tmp_path / "run", resume=True) == found


def test_no_process_of_any_run_draws_what_another_does() -> None:
    seeds = {process_seed(seed, rank) for seed in range(-5, 20) for rank in range(8)}
    assert len(seeds) == 25 * 8
    drawn = []
    for seed in seeds:
        with own_generators(seed):
            drawn.append(torch.rand(()).item())
    assert len({*drawn}) == len(seeds)


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

"""How custom graphs are split: in every way, and in folds."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.custom import DataOptions, open_custom
from graphmamba.data.custom.split import split_graphs, split_key
from graphmamba.errors import UserError
from tests.helpers.own_files import write_rings, write_rows

CLASSES = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)


def where(row: int) -> str:
    return f"row {row}"


def shares(split: torch.Tensor) -> list[list[int]]:
    return [CLASSES[split == number].bincount(minlength=3).tolist() for number in range(3)]


def test_classes_have_their_shares_in_each_split() -> None:
    stated = split_graphs(DataOptions(split="stratified", split_seed=1), 100, CLASSES)
    assert shares(stated) == [[48, 24, 8], [6, 3, 1], [6, 3, 1]]
    assert torch.equal(stated, split_graphs(DataOptions(split_seed=1), 100, CLASSES))
    assert not torch.equal(stated, split_graphs(DataOptions(split_seed=2), 100, CLASSES))
    assert shares(split_graphs(DataOptions(split="random"), 100, CLASSES)) != shares(stated)


def test_a_rare_class_is_split_along_and_too_few_graphs_at_random() -> None:
    rare = CLASSES.clone()
    rare[0] = 3
    assert split_graphs(DataOptions(), 100, rare).bincount().tolist() == [80, 10, 10]
    few = torch.tensor([0, 1, 0, 1, 2])
    assert split_graphs(DataOptions(), 5, few).bincount().tolist() == [3, 1, 1]
    with pytest.raises(UserError, match="split='stratified' needs more graphs of each class"):
        split_graphs(DataOptions(split="stratified"), 5, few)
    with pytest.raises(UserError, match="split='stratified' needs one class for each graph"):
        split_graphs(DataOptions(split="stratified"), 5)


@pytest.mark.parametrize("classes", [CLASSES, None], ids=["classes", "numbers"])
@pytest.mark.parametrize("name", [None, "random"])
def test_each_graph_is_tested_in_one_fold(classes: torch.Tensor | None, name: str | None) -> None:
    tested = torch.zeros(100, dtype=torch.int64)
    for fold in range(5):
        options = DataOptions(split=name, folds=5, fold=fold)
        split = split_graphs(options, 100, classes)
        assert split.bincount().tolist() == [71, 9, 20]
        if classes is not None and name is None:
            assert shares(split)[2] == [12, 6, 2]
        tested += split == 2
    assert tested.tolist() == [1] * 100


def test_a_scaffold_is_in_one_split() -> None:
    pytest.importorskip("rdkit")
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1"]
    smiles = [ring + "C" * size for ring in rings for size in range(5)]
    key = split_key("scaffold", smiles, where)
    assert key.tolist() == np.repeat(range(4), 5).tolist()
    ratios = (0.5, 0.25, 0.25)
    split = split_graphs(DataOptions(split="scaffold", split_ratios=ratios), 20, key=key)
    assert split.tolist() == [0] * 10 + [1] * 5 + [2] * 5
    for fold in range(4):
        options = DataOptions(split="scaffold", folds=4, fold=fold)
        split = split_graphs(options, 20, key=key)
        assert len({split[start : start + 5].unique().item() for start in (0, 5, 10, 15)}) == 3


@pytest.mark.parametrize(
    "cells",
    [
        ["2021-05-01", "2019-01-01", "2020-02-03", "2022-01-01"],
        ["2021", "2019.5", "2020", "1e9"],
        ["3 Mar 2021", "1 Jan 2019", "4 Feb 2020", "1 Jan 2022"],
    ],
)
def test_the_latest_graphs_are_tested(cells: list[str]) -> None:
    key = split_key("time", cells, where)
    options = DataOptions(split="time", split_column="when", split_ratios=(0.5, 0.25, 0.25))
    assert split_graphs(options, 4, key=key).tolist() == [1, 0, 0, 2]


def test_wrong_cells_are_reported_with_their_row() -> None:
    with pytest.raises(UserError, match=r"row 1: a time must be a number or a date, .* got 'x'"):
        split_key("time", ["2020", "x"], where)
    with pytest.raises(UserError, match="row 1: split must be one of train, validation, test"):
        split_key("column", ["train", "later"], where)


def test_files_are_split_by_their_columns(tmp_path: Path) -> None:
    folder, sets = write_rings(tmp_path / "rings", graphs=4), tmp_path / "sets"
    rows = [
        [f"g{n}", "ab"[n % 2], 2020 - n, set_]
        for n, set_ in enumerate(("Val", "dev", "train", "test"))
    ]
    write_rows(folder / "graphs.csv", ["graph", "taste", "year", "set"], rows)

    def split(**given: object) -> list[int]:
        options = DataOptions(target="taste", **given)
        found = open_custom(folder, options, sets).store.split
        return found.tolist()

    assert split(split="column", split_column="set") == [1, 1, 0, 2]
    halves = (0.5, 0.25, 0.25)
    assert split(split="time", split_column="year", split_ratios=halves) == [2, 1, 0, 0]
    # all of them share what was read
    assert len([file for file in (sets / "own").iterdir() if file.is_dir()]) == 1
    with pytest.raises(UserError, match="column 'when' must be there to split graphs by it"):
        split(split="time", split_column="when")
    write_rows(folder / "graphs.csv", ["graph", "taste", "split"], [[*r[:2], r[3]] for r in rows])
    assert split() == [1, 1, 0, 2]
    assert split(split="random") != [1, 1, 0, 2]
    with pytest.raises(UserError, match=r"for folds, data\.split must be"):
        split(folds=2)
    assert sorted(split(folds=2, split="random")) == [0, 1, 2, 2]

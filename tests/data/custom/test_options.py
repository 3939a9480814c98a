"""Options of custom graphs, and which formats read them."""

import pytest

from graphmamba.data.custom import DataOptions
from graphmamba.data.custom.options import OWN, READ_FOR, Format, check_read, only_read
from graphmamba.errors import UserError

ALL = DataOptions(
    target=("a", "b"),
    task="regression",
    level="graph",
    undirected=True,
    smiles="formula",
    split_ratios=(0.5, 0.25, 0.25),
    split_seed=3,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_seed": -1}, r"split_seed must be at least 0 and less than 2\*\*63, got -1"),
        ({"split_ratios": (0.5, 0.1, 0.1)}, r"split_ratios must be .* that add up to 1, got"),
        ({"split_ratios": (0.5, 0.5, 0.0)}, r"must be .* above 0, .* got \(0.5, 0.5, 0.0\)"),
        ({"task": "regression", "classes": 3}, "classes must be left out"),
        ({"split": "time"}, "split_column must name the column of times"),
        ({"split_column": "when"}, "split_column is read for split='column' or 'time' alone"),
        ({"split": "scaffold", "split_seed": 1}, "split_seed must be left out for split='scaff"),
        ({"folds": 1}, "folds must be 2 at least, or 0"),
        ({"folds": 3, "fold": 3}, "got folds=3 and fold=3"),
        ({"folds": 3, "split": "column"}, "split must be random, stratified or scaffold where"),
    ],
)
def test_options_that_contradict_themselves_are_rejected(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        DataOptions(**options)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"undirected": True}, ".npz", "undirected is read for a folder of CSV files alone"),
        ({"smiles": "formula"}, ".npz", "smiles is read for .* a CSV of molecules or .* alone"),
        ({"target": ("a", "b")}, ".npz", "target is read for a folder .* CSV .* got a, b for x"),
        ({"target": "a"}, "graphs", "target is read for .* alone, got 'a' for x"),
        ({"split_index": 1}, "folder", "split_index is read for an .npz .* alone, got 1 for x"),
        ({"split_seed": 3}, "benchmark", "split_seed is read for custom graphs alone, got 3 for x"),
    ],
)
def test_what_nobody_reads_is_rejected(
    options: dict[str, object], kind: Format, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_read(DataOptions(**options), kind, "x")


@pytest.mark.parametrize("kind", [*OWN, "benchmark"])
def test_what_is_left_after_leaving_out_is_read(kind: Format) -> None:
    check_read(DataOptions(), kind, "x")
    kept = only_read(ALL, kind)
    check_read(kept, kind, "x")
    assert kept.undirected == (kind == "folder")
    assert kept.smiles == ("formula" if kind in READ_FOR["smiles"] else "smiles")
    assert kept.split_seed == (0 if kind == "benchmark" else 3)

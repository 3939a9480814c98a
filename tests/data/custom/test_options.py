"""Options of custom graphs, and which formats read them."""

from pathlib import Path

import pytest

from graphmamba.data.custom import DataOptions, open_custom
from graphmamba.data.custom.options import OWN, READ_FOR, Format, check_read, format_of, only_read
from graphmamba.errors import UserError
from tests.data.custom.test_open import write_npz

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
    ("options", "kind", "message"),
    [
        ({"undirected": True}, ".npz", "undirected is read for a folder of CSV files alone"),
        ({"undirected": True}, ".csv", "undirected is read for .* alone, got True for x"),
        ({"undirected": True}, "graphs", "undirected is read for a folder of CSV files"),
        ({"smiles": "formula"}, ".npz", "smiles is read for .* a CSV of molecules or .* alone"),
        (
            {"target": ("a", "b")},
            ".npz",
            "target is read for a folder .* or a CSV .* got a, b for x",
        ),
        ({"target": "a"}, "graphs", "target is read for .* alone, got 'a' for x"),
        ({"split_index": 1}, "folder", "split_index is read for an .npz .* alone, got 1 for x"),
        ({"classes": 3}, "benchmark", "classes is read for custom graphs alone, got 3 for x"),
        ({"split_seed": 3}, "benchmark", "split_seed is read for custom graphs alone, got 3 for x"),
    ],
)
def test_what_nobody_reads_is_rejected(
    options: dict[str, object], kind: Format, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_read(DataOptions(**options), kind, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*OWN, "benchmark"])
def test_what_is_left_after_leaving_out_is_read(kind: Format) -> None:
    check_read(DataOptions(), kind, "x")
    kept = only_read(ALL, kind)
    check_read(kept, kind, "x")
    assert kept.undirected == (kind == "folder")
    assert kept.smiles == ("formula" if kind in READ_FOR["smiles"] else "smiles")
    assert kept.split_seed == (0 if kind == "benchmark" else 3)


def test_a_path_tells_the_format(tmp_path: Path) -> None:
    assert format_of(tmp_path) == "folder"
    assert [format_of(Path(name)) for name in ("a.npz", "a.csv", "a.txt", "a", "graphs")] == [
        ".npz",
        ".csv",
        None,
        None,
        None,
    ]


def test_files_are_opened_by_the_options_that_they_read(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "three.npz")
    with pytest.raises(UserError, match=rf"undirected is read for .* got True for {path}"):
        open_custom(path, DataOptions(undirected=True), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["three.npz"]

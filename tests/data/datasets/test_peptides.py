"""Peptides from SMILES, labels and targets."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.datasets.peptides import (
    TARGETS,
    read_peptides_func,
    read_peptides_struct,
    read_split,
)
from graphmamba.errors import UserError
from tests.helpers.raw_files import (
    LABELS,
    SMILES,
    cut,
    spoil,
    write_arrays,
    write_peptides,
    write_table,
)

pytest.importorskip("rdkit")


def test_func_has_all_peptides(tmp_path: Path) -> None:
    write_peptides(tmp_path)
    columns = read_peptides_func(tmp_path)
    assert columns.node_ptr.tolist() == [0, 2, 5, 8, 12, 18, 19]
    assert columns.graphs["y"].shape == (len(SMILES), 10)
    assert columns.graphs["y"][:, [4, 9]].eq(1).all()
    assert columns.graphs["y"].sum() == 2 * len(SMILES)
    assert columns.split is not None
    assert columns.split.tolist() == [0, 0, 1, 2, 0, 2]


def test_struct_has_the_measured_peptides_in_order_and_standardised(tmp_path: Path) -> None:
    write_peptides(tmp_path)
    columns = read_peptides_struct(tmp_path)
    assert columns.node_ptr.diff().tolist() == [2, 4, 6]
    assert columns.split is not None
    assert columns.split.tolist() == [0, 2, 0]
    targets = columns.graphs["y"]
    assert targets.shape == (3, len(TARGETS))
    torch.testing.assert_close(targets.mean(dim=0), torch.zeros(11))
    torch.testing.assert_close(targets.std(dim=0), torch.ones(11))
    assert (targets.diff(dim=0) > 0).all()
    assert "3 of 6 peptides. All 11 targets are partial" in columns.source


@pytest.mark.parametrize("name", ["structure", "structure_normalized"])
def test_struct_takes_the_published_targets_where_they_are(name: str, tmp_path: Path) -> None:
    write_peptides(tmp_path)
    rows = [[text, *(float(i * i + k) for k in range(11))] for i, text in enumerate(SMILES)]
    path = tmp_path / f"peptide_{name}_dataset.csv.gz"
    write_table(path, ["smiles", *TARGETS], rows)
    columns = read_peptides_struct(tmp_path)
    assert columns.node_ptr.tolist() == [0, 2, 5, 8, 12, 18, 19]
    assert columns.split is not None
    assert columns.split.tolist() == [0, 0, 1, 2, 0, 2]
    expected = torch.arange(6.0).square()
    expected = (expected - expected.mean()) / expected.std()
    torch.testing.assert_close(columns.graphs["y"], expected[:, None].expand(6, 11))
    assert columns.source == f"built from {path.name}: all 6 peptides"
    rows[3][5] = "much"  # type: ignore[call-overload]
    write_table(path, ["smiles", *TARGETS], rows)
    with pytest.raises(UserError, match=r"line 5: Inertia_valence_b must be a finite number"):
        read_peptides_struct(tmp_path)
    write_table(path, ["smiles", *TARGETS], rows[:3])
    with pytest.raises(UserError, match="split must have 3 entries"):
        read_peptides_struct(tmp_path)


@pytest.mark.parametrize(
    "labels",
    [
        "[0, 1]",
        "[0, 0, 0, 0, 2, 0, 0, 0, 0, 1]",
        "[[0], 0, 0, 0, 1, 0, 0, 0, 0, 1]",
        "[{}, null, 0, 0, 1, 0, 0, 0, 0, 1]",
        "[" * 100_000,
        "toxic",
        "",
    ],
    ids=["few", "two", "nested", "others", "deep", "word", "none"],
)
def test_wrong_labels_are_named_with_their_line(tmp_path: Path, labels: str) -> None:
    write_peptides(tmp_path, labels)
    with pytest.raises(UserError, match=r"\.csv\.gz, line 4: labels must be 10 of 0 and 1"):
        read_peptides_func(tmp_path)


@pytest.mark.parametrize(
    ("row", "value", "message"),
    [
        ("7", "1.0", r"line 3: lrgb_row must be 0 to 5, got 7"),
        ("9" * 9000, "1.0", r"line 3: lrgb_row must be 0 to 5, got 9{9000}"),
        ("x", "1.0", r"line 3: lrgb_row must be a whole number, got 'x'"),
        ("0", "1.0", r"lrgb_row 0 must occur once"),
        ("1", "nan", r"line 3: length_a must be a finite number, got 'nan'"),
        ("1", "", r"line 3: length_a must be a finite number, got ''"),
    ],
)
def test_wrong_targets_are_named(tmp_path: Path, row: str, value: str, message: str) -> None:
    write_peptides(tmp_path)
    path = tmp_path / "peptide_struct_partial.csv"
    rows: list[list[object]] = [[i, *([1.0] * 11)] for i in ("0", row)]
    rows[1][1 + TARGETS.index("length_a")] = value
    write_table(path, ["lrgb_row", *TARGETS], rows)
    with pytest.raises(UserError, match=message):
        read_peptides_struct(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], "must hold targets of 2 peptides at least, got 1"),
        ([3.0, 3.0], r"Spherocity must differ from peptide to peptide and be .* got 3\.0 to 3\.0"),
        ([-1e308, 1e308], "Spherocity must differ from peptide to peptide and be finite"),
    ],
)
@pytest.mark.parametrize("file", ["peptide_struct_partial.csv", "peptide_structure_dataset.csv"])
def test_targets_without_a_deviation_are_rejected(
    file: str, values: list[float], message: str, tmp_path: Path
) -> None:
    write_peptides(tmp_path)
    write_arrays(tmp_path / "peptide_split.npz", split=np.zeros(len(values), np.uint8))
    path, place = tmp_path / "peptide_multi_class_dataset.csv.gz", TARGETS.index("Spherocity")
    rows: list[list[object]] = [[text, LABELS] for text in SMILES[: len(values)]]
    write_table(path, ["smiles", "labels"], rows)
    others = [float(number) for number in range(len(values))]
    rows = [
        [number, text, *[other] * place, value, *[other] * (10 - place)]
        for number, (text, other, value) in enumerate(zip(SMILES, others, values, strict=False))
    ]
    write_table(tmp_path / file, ["lrgb_row", "smiles", *TARGETS], rows)
    with pytest.raises(UserError, match=rf"{file}:? {message}"):
        read_peptides_struct(tmp_path)


def test_a_split_of_other_peptides_is_rejected(tmp_path: Path) -> None:
    write_peptides(tmp_path)
    write_arrays(tmp_path / "peptide_split.npz", split=np.zeros(5, np.uint8))
    with pytest.raises(UserError, match="split must have 6 entries"):
        read_peptides_func(tmp_path)
    write_arrays(tmp_path / "peptide_split.npz", split=np.full(6, 3, np.uint8))
    with pytest.raises(UserError, match=r"split must hold 0, 1 and 2 alone, got \[3\]"):
        read_peptides_func(tmp_path)


@pytest.mark.parametrize("kind", [np.float32, bool])
def test_a_split_of_other_than_integers_is_rejected(kind: type, tmp_path: Path) -> None:
    write_peptides(tmp_path)
    write_arrays(tmp_path / "peptide_split.npz", split=np.array([0, 0.9, 1, 1, 0, 1]).astype(kind))
    with pytest.raises(UserError, match=r"peptide_split\.npz: split must hold integers, got "):
        read_peptides_func(tmp_path)


def test_a_short_row_is_named(tmp_path: Path) -> None:
    write_peptides(tmp_path)
    path = tmp_path / "peptide_multi_class_dataset.csv.gz"
    write_table(path, ["labels", "smiles"], [[LABELS, "CC"], [LABELS]] + [[LABELS, "N"]] * 4)
    with pytest.raises(UserError, match=r"line 3: smiles must name a molecule, got ''"):
        read_peptides_func(tmp_path)


PUBLISHED = "splits_random_stratified_peptide.pickle"
PARTS = {"train": [4, 0, 1], "val": [2], "test": [5, 3]}


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("file", [PUBLISHED, PUBLISHED.replace("peptide", "peptide_structure")])
def test_the_published_split_is_read(file: str, protocol: int, tmp_path: Path) -> None:
    write_peptides(tmp_path)
    expected = read_split(tmp_path, len(SMILES))
    (tmp_path / "peptide_split.npz").unlink()
    arrays = {part: np.array(members) for part, members in PARTS.items()}
    (tmp_path / file).write_bytes(pickle.dumps(arrays, protocol))
    assert torch.equal(read_split(tmp_path, len(SMILES)), expected)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ([1, 2], "must hold a dictionary of train, val, test, got list"),
        (
            PARTS | {"more": [1]},
            r"must hold a dictionary .* got \['more', 'test', 'train', 'val'\]",
        ),
        (PARTS | {"val": [2, 0]}, "must name each peptide once, got peptide 0 2 times"),
        (PARTS | {"val": [2.0]}, "val must hold numbers of peptides, 0 to 5, got float64"),
        (PARTS | {"val": [6]}, "val must hold numbers of peptides, 0 to 5"),
        (PARTS | {"val": [-4]}, "val must hold numbers of peptides, 0 to 5"),
        (PARTS | {"test": [5]}, "must name each peptide once, got peptide 3 0 times"),
        (PARTS | {"test": torch.tensor([5])}, r"must hold arrays alone: it asks for torch\."),
        (PARTS | {"test": Path()}, "must hold arrays alone: it asks for pathlib"),
    ],
)
def test_another_published_split_is_rejected(held: object, message: str, tmp_path: Path) -> None:
    (tmp_path / PUBLISHED).write_bytes(pickle.dumps(held))
    with pytest.raises(UserError, match=message):
        read_split(tmp_path, 6)


@pytest.mark.parametrize("damage", [cut, spoil])
def test_a_damaged_table_is_named(damage: Callable[[Path], None], tmp_path: Path) -> None:
    write_peptides(tmp_path)
    damage(tmp_path / "peptide_multi_class_dataset.csv.gz")
    with pytest.raises(UserError, match="must be a whole CSV file"):
        read_peptides_func(tmp_path)

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
    assert columns.split.tolist() == [0, 0, 1, 2, 0, 2]


def test_struct_has_the_measured_peptides_in_order_and_standardised(tmp_path: Path) -> None:
    write_peptides(tmp_path)
    columns = read_peptides_struct(tmp_path)
    assert columns.node_ptr.diff().tolist() == [2, 4, 6]
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
    assert columns.split.tolist() == [0, 0, 1, 2, 0, 2]
    expected = torch.arange(6.0).square()
    expected = (expected - expected.mean()) / expected.std()
    torch.testing.assert_close(columns.graphs["y"], expected[:, None].expand(6, 11))
    assert columns.source == f"built from {path.name}: all 6 peptides"
    rows[3][5] = "much"
    write_table(path, ["smiles", *TARGETS], rows)
    with pytest.raises(UserError, match=r"csv\.gz must be a table of numbers: .*much"):
        read_peptides_struct(tmp_path)


@pytest.mark.parametrize("labels", ["[0, 1]", "[{}]", "toxic", ""])
def test_wrong_labels_are_reported(tmp_path: Path, labels: str) -> None:
    write_peptides(tmp_path, labels)
    with pytest.raises(UserError, match=r"\.csv\.gz must be a table whose labels are lists"):
        read_peptides_func(tmp_path)


@pytest.mark.parametrize(
    ("numbers", "values", "message"),
    [
        (["0", "7"], [1.0, 2.0], "must be a table whose lrgb_row numbers the peptides"),
        (["0", "x"], [1.0, 2.0], "must be a table whose lrgb_row numbers the peptides"),
        (["0"], [1.0], "Inertia_mass_a must differ from peptide to peptide and be finite"),
        (["0", "1"], [3.0, 3.0], r"differ from peptide to peptide and be .* got 3\.0 to 3\.0"),
        (["0", "1"], [1.0, "nan"], "differ from peptide to peptide and be finite"),
        (["0", "1"], [1.0, ""], "must be a table of numbers"),
    ],
)
def test_wrong_targets_are_reported(
    tmp_path: Path, numbers: list[str], values: list[object], message: str
) -> None:
    write_peptides(tmp_path)
    rows: list[list[object]] = [
        [number, *([value] * 11)] for number, value in zip(numbers, values, strict=True)
    ]
    write_table(tmp_path / "peptide_struct_partial.csv", ["lrgb_row", *TARGETS], rows)
    with pytest.raises(UserError, match=rf"peptide_struct_partial\.csv:? .*{message}"):
        read_peptides_struct(tmp_path)


def test_a_split_of_other_peptides_is_rejected(tmp_path: Path) -> None:
    write_peptides(tmp_path)
    write_arrays(tmp_path / "peptide_split.npz", split=np.zeros(5, np.uint8))
    with pytest.raises(UserError, match=r"peptide_split\.npz must be a split of 6 peptides"):
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
        ([1, 2], "must be a split of 6 peptides"),
        (PARTS | {"val": [2, 0]}, "must name each of the graphs 0 to 5 once"),
        (PARTS | {"test": torch.tensor([5])}, r"a pickle of arrays alone: it asks for torch\."),
        (PARTS | {"test": Path()}, "a pickle of arrays alone: it asks for pathlib"),
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

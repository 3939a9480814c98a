"""Peptides-func and Peptides-struct from their files: SMILES with labels, targets, a split.

Long Range Graph Benchmark (https://arxiv.org/abs/2206.08164).
"""

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.catalog import PEPTIDE_FUNCTIONS, PEPTIDE_STRUCTURES
from graphmamba.data.datasets.files import DAMAGED, find_file, read_arrays
from graphmamba.data.datasets.molecules import read_smiles
from graphmamba.data.datasets.safe_pickle import read_array_pickle
from graphmamba.data.splits import SPLITS
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

SPLIT = "peptide_split.npz"
"""Holds `split`: 0, 1 or 2 for each peptide."""
PUBLISHED = (
    "splits_random_stratified_peptide.pickle",
    "splits_random_stratified_peptide_structure.pickle",
)
"""The same file under two names: a dictionary of the peptides in each split."""
SPLIT_NAMES = ("train", "val", "test")
LABELLED = "peptide_multi_class_dataset.csv"
STRUCTURES = ("peptide_structure_dataset.csv", "peptide_structure_normalized_dataset.csv")
"""The published targets, one row for each peptide: as computed, or standardised already."""
MEASURED = "peptide_struct_partial.csv"
"""Targets of some peptides, computed by somebody else: `lrgb_row` numbers the peptide."""
SPLIT_FILES = f"{PUBLISHED[0]} (or {SPLIT})"
CLASSES = len(PEPTIDE_FUNCTIONS)
TARGETS = PEPTIDE_STRUCTURES
DIGITS = 18
LEAST = 2
"""Peptides that a standard deviation takes."""
Row = dict[str, str]


def read_split(folder: Path, peptides: int) -> Int[Tensor, " graphs"]:
    """Read the split of each peptide; func and struct share it."""
    path = find_file(folder, SPLIT, *PUBLISHED)
    if path.name == SPLIT:
        given = read_arrays(path, ["split"])["split"]
        if not np.issubdtype(given.dtype, np.integer):
            raise UserError(f"{path}: split must hold integers, got {given.dtype}")
        split = torch.from_numpy(given.astype(np.int64))
    else:
        split = _read_published(path, peptides)
    if split.shape != (peptides,):
        raise UserError(f"{path}: split must have {peptides} entries, got {tuple(split.shape)}")
    if not set(split.unique().tolist()) <= set(SPLITS.values()):
        raise UserError(f"{path}: split must hold 0, 1 and 2 alone, got {split.unique().tolist()}")
    return split


def _read_published(path: Path, peptides: int) -> Int[Tensor, " graphs"]:
    parts = read_array_pickle(path)
    if not isinstance(parts, dict) or set(parts) != set(SPLIT_NAMES):
        got = sorted(map(str, parts)) if isinstance(parts, dict) else type(parts).__name__
        raise UserError(f"{path} must hold a dictionary of {', '.join(SPLIT_NAMES)}, got {got}")
    members = [_members(path, part, parts[part], peptides) for part in SPLIT_NAMES]
    count = np.bincount(np.concatenate(members), minlength=peptides)
    if (count != 1).any():
        place = int((count != 1).argmax())
        raise UserError(
            f"{path} must name each peptide once, got peptide {place} {count[place]} times"
        )
    split = np.empty(peptides, dtype=np.int64)
    for number, part in enumerate(members):
        split[part] = number
    return torch.from_numpy(split)


def _members(path: Path, part: str, values: Any, peptides: int) -> np.ndarray:
    members = np.asarray(values)
    is_list = members.ndim == 1 and np.issubdtype(members.dtype, np.integer)
    if not is_list or not len(members) or members.min() < 0 or members.max() >= peptides:
        raise UserError(
            f"{path}: {part} must hold numbers of peptides, 0 to {peptides - 1}, "
            f"got {members.dtype} of shape {members.shape}"
        )
    return members.astype(np.int64)


def read_peptides_func(folder: Path) -> GraphColumns:
    """Read all peptides with their ten labels."""
    path, rows = _read_peptides(folder)
    labels = torch.tensor([_read_labels(path, line, row) for line, row in enumerate(rows, 2)])
    split = read_split(folder, len(rows))
    graphs = read_smiles([row["smiles"] for row in rows], _line_of(path, range(len(rows))))
    return replace(graphs, graphs={"y": labels}, split=split, source=f"built from {path.name}")


def read_peptides_struct(folder: Path) -> GraphColumns:
    """Read the published targets where the folder has them, or else those of some peptides.

    Targets are standardised over the peptides that are there, test split included, as the published
    ones are over all. Fewer peptides give other units, hence scores of their own.
    """
    for name in [f"{name}{ending}" for name in STRUCTURES for ending in (".gz", "")]:
        if (folder / name).is_file():
            path = origin = folder / name
            rows = _read_rows(path, ["smiles", *TARGETS])
            raw = torch.tensor(_read_target_rows(path, rows), dtype=torch.float64)
            split, chosen = read_split(folder, len(rows)), list(range(len(rows)))
            source = f"built from {path.name}: all {len(rows):,} peptides"
            break
    else:
        path, rows = _read_peptides(folder)
        origin = find_file(folder, MEASURED)
        numbers, raw = _read_targets(origin, len(rows))
        split, chosen = read_split(folder, len(rows))[numbers], numbers.tolist()
        source = (
            f"built from {path.name} and {origin.name}: {len(chosen):,} of {len(rows):,} peptides. "
            f"All {len(TARGETS)} targets are partial, in units of their own: scores are not "
            "comparable with published ones"
        )
    targets = standardise(raw, str(origin))
    graphs = read_smiles([rows[i]["smiles"] for i in chosen], _line_of(path, chosen))
    return replace(graphs, graphs={"y": targets}, split=split, source=source)


def standardise(
    targets: Float[Tensor, "graphs targets"], origin: str = "the graphs"
) -> Float[Tensor, "graphs targets"]:
    """Give each target mean 0 and sample standard deviation 1."""
    exact = targets.double()
    if len(exact) < LEAST:
        raise UserError(
            f"{origin} must hold targets of {LEAST} peptides at least, got {len(exact)}"
        )
    low, high = torch.aminmax(exact, dim=0)
    deviation = exact.std(dim=0)
    wrong = ~deviation.isfinite() | (low == high)
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0])
        raise UserError(
            f"{origin}: {TARGETS[place]} must differ from peptide to peptide and be finite, "
            f"got {float(low[place])} to {float(high[place])}"
        )
    return ((exact - exact.mean(dim=0)) / deviation).float()


def _read_peptides(folder: Path) -> tuple[Path, list[Row]]:
    path = find_file(folder, f"{LABELLED}.gz", LABELLED)
    return path, _read_rows(path, ["smiles", "labels"])


def _read_rows(path: Path, columns: Sequence[str]) -> list[Row]:
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        rows = list(reader)
    except (*DAMAGED, csv.Error) as error:
        raise UserError(f"{path} must be a whole CSV file: {error}") from error
    names = reader.fieldnames or []
    for column in columns:
        if column not in names:
            raise UserError(f"{path} must have the column '{column}', got {', '.join(names)}")
    if not rows:
        raise UserError(f"{path} must hold at least one row, got none")
    return rows


def _line_of(path: Path, numbers: Sequence[int]) -> Callable[[int], str]:
    """How messages call a molecule: its line in the file, whose first line are the names."""
    return lambda place: f"{path}, line {numbers[place] + 2}"


def _read_labels(path: Path, line: int, row: Row) -> list[float]:
    try:
        labels = json.loads(row["labels"])
    except (json.JSONDecodeError, RecursionError):
        labels = None
    is_fitting = isinstance(labels, list) and len(labels) == CLASSES
    if not is_fitting or any(label not in (0, 1) for label in labels):
        raise UserError(
            f"{path}, line {line}: labels must be {CLASSES} of 0 and 1 in brackets, "
            f"got {row['labels']!r}"
        )
    return [float(label) for label in labels]


def _read_targets(
    path: Path, peptides: int
) -> tuple[Int[Tensor, " graphs"], Float[Tensor, "graphs targets"]]:
    rows = _read_rows(path, ["lrgb_row", *TARGETS])
    numbers = torch.tensor(
        [_read_number(path, line, row, peptides) for line, row in enumerate(rows, 2)]
    )
    order = numbers.argsort(stable=True)
    twice = (numbers[order].diff() == 0).nonzero()
    if twice.numel():
        raise UserError(
            f"{path}: lrgb_row {int(numbers[order[twice[0]]])} must occur once, got two"
        )
    targets = torch.tensor(_read_target_rows(path, rows), dtype=torch.float64)
    return numbers[order], targets[order].float()


def _read_target_rows(path: Path, rows: list[Row]) -> list[list[float]]:
    return [
        [_read_target(path, line, row, name) for name in TARGETS]
        for line, row in enumerate(rows, 2)
    ]


def _read_number(path: Path, line: int, row: Row, peptides: int) -> int:
    text = row["lrgb_row"]
    if not text.isdecimal():
        raise UserError(f"{path}, line {line}: lrgb_row must be a whole number, got {text!r}")
    # Python itself will not read thousands of digits.
    if len(text) > DIGITS or int(text) >= peptides:
        raise UserError(f"{path}, line {line}: lrgb_row must be 0 to {peptides - 1}, got {text}")
    return int(text)


def _read_target(path: Path, line: int, row: Row, name: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}, line {line}: {name} must be a finite number, got {row[name]!r}")
    return value

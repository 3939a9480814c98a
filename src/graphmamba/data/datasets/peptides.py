"""Peptides-func and Peptides-struct from their files: SMILES with labels, targets, a split.

Long Range Graph Benchmark (https://arxiv.org/abs/2206.08164).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.catalog import PEPTIDE_STRUCTURES
from graphmamba.data.datasets.files import find_file, read_arrays, reading
from graphmamba.data.datasets.molecules import read_smiles
from graphmamba.data.datasets.safe_pickle import read_array_pickle
from graphmamba.data.splits import SPLITS, split_numbers
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

SPLIT = "peptide_split.npz"  # holds `split`: 0, 1 or 2 for each peptide
PUBLISHED = (
    "splits_random_stratified_peptide.pickle",
    "splits_random_stratified_peptide_structure.pickle",
)
"""The same file under two names: a dictionary of the peptides in each split."""
LABELLED = "peptide_multi_class_dataset.csv"
STRUCTURES = ("peptide_structure_dataset.csv", "peptide_structure_normalized_dataset.csv")
"""The published targets, one row for each peptide: as computed, or standardised already."""
MEASURED = "peptide_struct_partial.csv"
"""Targets of some peptides, computed by somebody else: `lrgb_row` numbers the peptide."""
SPLIT_FILES = f"{PUBLISHED[0]} (or {SPLIT})"
TARGETS = PEPTIDE_STRUCTURES


def read_split(folder: Path, peptides: int) -> Int[Tensor, " graphs"]:
    """Read the split of each peptide; func and struct share it."""
    path = find_file(folder, SPLIT, *PUBLISHED)
    with reading(path, f"a split of {peptides} peptides"):
        if path.name != SPLIT:
            parts = read_array_pickle(path)
            keys = zip(SPLITS, ("train", "val", "test"), strict=True)
            members = {name: [int(place) for place in parts[key]] for name, key in keys}
            split = split_numbers(members, peptides)
        else:
            numbers = read_arrays(path, ["split"])["split"]
            split = torch.from_numpy(numbers.astype(np.int64, casting="same_kind"))
        if split is None or split.shape != (peptides,):
            raise ValueError(f"it has {0 if split is None else len(split)} entries")
        return split


def read_peptides_func(folder: Path) -> GraphColumns:
    """Read all peptides with their ten labels."""
    path = find_file(folder, f"{LABELLED}.gz", LABELLED)
    rows = _read_rows(path, ["smiles", "labels"])
    with reading(path, "a table whose labels are lists of 0 and 1"):
        labels = torch.tensor([json.loads(text) for text in rows["labels"]]).float()
    return replace(
        _read_molecules(path, rows["smiles"]),
        graphs={"y": labels},
        split=read_split(folder, len(rows)),
        source=f"built from {path.name}",
    )


def read_peptides_struct(folder: Path) -> GraphColumns:
    """Read the published targets where the folder has them, or else those of some peptides.

    Targets are standardised over the peptides that are there, test split included, as the published
    ones are over all. Fewer peptides give other units, hence scores of their own.
    """
    names = [f"{name}{ending}" for name in STRUCTURES for ending in (".gz", "")]
    if any((folder / name).is_file() for name in names):
        path = origin = find_file(folder, *names)
        rows = _read_rows(path, ["smiles", *TARGETS])
        raw, split = _read_targets(path, rows), read_split(folder, len(rows))
        source = f"built from {path.name}: all {len(rows):,} peptides"
    else:
        path, origin = find_file(folder, f"{LABELLED}.gz", LABELLED), find_file(folder, MEASURED)
        every, some = _read_rows(path, ["smiles"]), _read_rows(origin, ["lrgb_row", *TARGETS])
        with reading(origin, "a table whose lrgb_row numbers the peptides"):
            some = some.set_index(some["lrgb_row"].astype(int)).sort_index()
            rows = every.iloc[some.index]
        raw = _read_targets(origin, some).float()
        split = read_split(folder, len(every))[some.index.tolist()]
        source = (
            f"built from {path.name} and {origin.name}: {len(rows):,} of {len(every):,} peptides. "
            f"All {len(TARGETS)} targets are partial, in units of their own: scores are not "
            "comparable with published ones"
        )
    return replace(
        _read_molecules(path, rows["smiles"]),
        graphs={"y": standardise(raw, str(origin))},
        split=split,
        source=source,
    )


def standardise(
    targets: Float[Tensor, "graphs targets"], origin: str
) -> Float[Tensor, "graphs targets"]:
    """Give each target mean 0 and sample standard deviation 1."""
    exact = targets.double()
    low, high = torch.aminmax(exact, dim=0)
    deviation = exact.std(dim=0) if len(exact) > 1 else torch.zeros_like(low)
    wrong = ~deviation.isfinite() | (low == high)
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0])
        raise UserError(
            f"{origin}: {TARGETS[place]} must differ from peptide to peptide and be finite, "
            f"got {float(low[place])} to {float(high[place])}"
        )
    return ((exact - exact.mean(dim=0)) / deviation).float()


def _read_rows(path: Path, columns: list[str]) -> Any:
    """Read a table as words."""
    import pandas as pd

    with reading(path, "a whole CSV file"):
        return pd.read_csv(path, usecols=columns, dtype=str, keep_default_na=False).fillna("")


def _read_targets(path: Path, rows: Any) -> Float[Tensor, "graphs targets"]:
    with reading(path, "a table of numbers"):
        return torch.from_numpy(rows[list(TARGETS)].astype(float).to_numpy())


def _read_molecules(path: Path, smiles: Any) -> GraphColumns:
    # the first line of the file are the names
    return read_smiles(smiles.tolist(), lambda place: f"{path}, line {smiles.index[place] + 2}")

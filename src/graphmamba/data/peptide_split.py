"""Which part each peptide is in: the published pickle, or the same as an array."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.datasets.files import find_file, read_arrays
from graphmamba.data.datasets.safe_pickle import read_array_pickle
from graphmamba.data.splits import SPLITS
from graphmamba.errors import UserError

SPLIT = "peptide_split.npz"
"""Holds `split`: 0, 1 or 2 for each peptide."""
PUBLISHED = (
    "splits_random_stratified_peptide.pickle",
    "splits_random_stratified_peptide_structure.pickle",
)
"""The same file under two names: a dictionary of the peptides in each part."""
PARTS = ("train", "val", "test")


def read_split(folder: Path, peptides: int) -> Int[Tensor, " graphs"]:
    """Read the part of each peptide; func and struct share it."""
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
    if not isinstance(parts, dict) or set(parts) != set(PARTS):
        got = sorted(map(str, parts)) if isinstance(parts, dict) else type(parts).__name__
        raise UserError(f"{path} must hold a dictionary of {', '.join(PARTS)}, got {got}")
    members = [_members(path, part, parts[part], peptides) for part in PARTS]
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

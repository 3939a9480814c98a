"""PCQM-Contact from its published table: molecules with hydrogens, and atoms that are near.

Long Range Graph Benchmark (https://arxiv.org/abs/2206.08164). Each row of the table is a molecule
as an extended SMILES, whose atoms carry the numbers of their contacts. Both atoms of a contact
carry its number.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.datasets.files import DAMAGED, find_file
from graphmamba.data.molecules import columns_of_molecules, import_rdkit
from graphmamba.data.tables import LINKS, GraphColumns, Pairs, boundaries
from graphmamba.errors import UserError

FILE = "pcqm4m-contact.tsv"
COLUMN = "cxsmiles"
STRIDE = 6
"""Every sixth molecule of the table is in the benchmark, those without contacts left out."""
SEED = 42
SHARES = (0.05, 0.05)
"""Of validation and test."""
BOTH = 2
"""Atoms of a contact."""
Row = tuple[int, str]
"""A line number and an extended SMILES."""
Follow = Callable[[Iterable[Row]], Iterable[Row]]


def read_pcqm_contact(folder: Path, follow: Follow = iter, stride: int = STRIDE) -> GraphColumns:
    """Read the molecules of the benchmark with their contacts, in both directions.

    Args:
        folder: Holds the table, packed or not.
        follow: Wraps the walk over the molecules, for a progress bar.
        stride: Take every such molecule of the table.
    """
    path = find_file(folder, f"{FILE}.gz", FILE)
    contacts: list[list[tuple[int, int]]] = []
    lines: list[int] = []
    graphs = columns_of_molecules(
        _molecules(path, follow(_rows(path, stride)), contacts, lines),
        lambda number: f"{path}, line {lines[number]}",
    )
    if not contacts:
        raise UserError(f"{path} must hold at least one molecule with contacts, got none")
    pairs = torch.tensor([pair for each in contacts for pair in each]).T.contiguous()
    counts = torch.tensor([len(each) for each in contacts])
    return replace(
        graphs,
        pairs={LINKS: Pairs(boundaries(counts), pairs)},
        split=shuffled_split(len(contacts)),
        source=f"built from {path.name}, every molecule of {stride}",
    )


def shuffled_split(graphs: int) -> Int[Tensor, " graphs"]:
    """Deal out the molecules at random, 90 to 5 to 5, with the published seed."""
    order = np.random.default_rng(SEED).permutation(graphs)
    validation, test = SHARES
    first = int((1 - validation - test) * graphs)
    second = first + int(validation / (validation + test) * (graphs - first))
    split = np.zeros(graphs, dtype=np.int64)
    split[order[first:second]], split[order[second:]] = 1, 2
    return torch.from_numpy(split)


def _rows(path: Path, stride: int) -> Iterator[Row]:
    """Walk over the table, a molecule at a time: unpacked it would fill the memory."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            lines = csv.reader(file, delimiter="\t")
            names = next(lines, [])
            if COLUMN not in names:
                raise UserError(f"{path} must have the column '{COLUMN}', got {', '.join(names)}")
            place = names.index(COLUMN)
            for number, line in enumerate(lines):
                if number % stride == 0:
                    yield number + 2, line[place] if place < len(line) else ""
    except UserError:
        raise
    except (*DAMAGED, csv.Error) as mistake:
        raise UserError(f"{path} must be a whole table: {mistake}") from mistake


def _molecules(
    path: Path, rows: Iterable[Row], contacts: list[list[tuple[int, int]]], lines: list[int]
) -> Iterator[Any]:
    """Yield the molecules that have contacts, and note the contacts and the line of each."""
    chem = import_rdkit()
    for line, text in rows:
        # Published features are of molecules as written: hydrogens stay, nothing is worked out.
        molecule = chem.MolFromSmiles(text, sanitize=False)
        if molecule is None or not molecule.GetNumAtoms():
            raise UserError(f"{path}, line {line}: {COLUMN} must name a molecule, got {text!r}")
        found = _contacts_of(molecule, f"{path}, line {line}")
        if found:
            contacts.append(found)
            lines.append(line)
            yield molecule


def _contacts_of(molecule: Any, name: str) -> list[tuple[int, int]]:
    """Pairs of atoms that carry the same number, both ways, in the order of their atoms."""
    atoms_of: dict[str, list[int]] = defaultdict(list)
    for atom in molecule.GetAtoms():
        if atom.HasProp("contact"):
            for number in atom.GetProp("contact").split(";"):
                if number:
                    atoms_of[number].append(atom.GetIdx())
    for number, atoms in atoms_of.items():
        if len(atoms) != BOTH or atoms[0] == atoms[1]:
            raise UserError(f"{name}: contact {number} must join two atoms, got atoms {atoms}")
    return sorted({pair for a, b in atoms_of.values() for pair in ((a, b), (b, a))})

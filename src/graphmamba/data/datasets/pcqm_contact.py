"""PCQM-Contact from its published table: molecules with hydrogens, and pairs of atoms in contact.

Long Range Graph Benchmark (https://arxiv.org/abs/2206.08164). Each row of the table is a molecule
as an extended SMILES, whose atoms carry the numbers of their contacts; both atoms of a contact
carry its number. Negative pairs are sampled for each batch.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphmamba.data.datasets.files import find_file, reading
from graphmamba.data.datasets.molecules import columns_of_molecules, import_rdkit
from graphmamba.data.parallel import track
from graphmamba.data.tables import LINKS, GraphColumns, Pairs, boundaries
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits, take_bits

FILE = "pcqm4m-contact.tsv"
COLUMN = "cxsmiles"
STRIDE = 6  # every sixth molecule of the table is in the benchmark, those without contacts left out
SEED = 42
SHARES = (0.05, 0.05)  # of validation and test
BOTH = 2  # atoms of a contact
NEGATIVES = 2  # negative pairs per positive pair
ROUNDS = 10  # attempts to replace an invalid negative pair
PART = 10_000  # rows of the table that are read at a time
BITS = 32  # random bits that decide on a node


def read_pcqm_contact(folder: Path, stride: int = STRIDE) -> GraphColumns:
    """Read every `stride`th molecule of the table with its contacts, in both directions."""
    path = find_file(folder, f"{FILE}.gz", FILE)
    contacts: list[list[tuple[int, int]]] = []
    lines: list[int] = []
    graphs = columns_of_molecules(
        _molecules(path, stride, contacts, lines),
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
    """Split the molecules at random, 90 to 5 to 5, with the published seed."""
    order = np.random.default_rng(SEED).permutation(graphs)
    validation, test = SHARES
    first = int((1 - validation - test) * graphs)
    second = first + int(validation / (validation + test) * (graphs - first))
    split = np.zeros(graphs, dtype=np.int64)
    split[order[first:second]], split[order[second:]] = 1, 2
    return torch.from_numpy(split)


def _molecules(
    path: Path, stride: int, contacts: list[list[tuple[int, int]]], lines: list[int]
) -> Iterator[Any]:
    """Yield the molecules that have contacts, and note the contacts and the line of each."""
    import pandas as pd

    chem = import_rdkit()

    def rows() -> Iterator[tuple[int, str]]:
        """Lines and texts of the table, part by part: unpacked it would fill the memory."""
        options = {"usecols": [COLUMN], "dtype": str, "keep_default_na": False, "chunksize": PART}
        with reading(path, "a whole table"), pd.read_csv(path, sep="\t", **options) as parts:
            for part in parts:
                yield from part[COLUMN][part.index % stride == 0].items()

    # how many there are is known at the end of the file only
    for row, text in track(rows(), "Molecules", None):
        name = f"{path}, line {row + 2}"
        # Published features are of molecules as written: hydrogens stay, nothing is worked out.
        molecule = chem.MolFromSmiles(text, sanitize=False)
        if molecule is None or not molecule.GetNumAtoms():
            raise UserError(f"{name}: {COLUMN} must name a molecule, got {text!r}")
        if found := _contacts_of(molecule, name):
            contacts.append(found)
            lines.append(row + 2)
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


def draw_negatives(
    positives: Int[Tensor, "2 pairs"],
    node_ptr: Int[Tensor, " boundaries"],
    stream: Int[Tensor, ""],
) -> tuple[Int[Tensor, "2 negatives"], Bool[Tensor, " negatives"]]:
    """Sample negative pairs: the first node of each positive pair, and any node of its graph.

    Positive and repeated pairs are sampled again, at most ten times. Self-pairs and edges are
    allowed, as in the Long Range Graph Benchmark. No shape depends on the data, and nothing waits
    for the device.

    Pairs are indices in the batch, positive ones in both directions; returns the negative ones,
    and which of them are valid.
    """
    head = positives[0].repeat_interleave(NEGATIVES)
    graph = torch.searchsorted(node_ptr, head, right=True) - 1
    start, size = node_ptr[graph], node_ptr[graph + 1] - node_ptr[graph]
    place = torch.arange(head.shape[0], device=head.device)
    # each pair as one number, so that equal pairs are equal numbers
    total = node_ptr[-1]
    known = (positives[0] * total + positives[1]).sort().values

    def draw(number: int) -> Int[Tensor, " pairs"]:
        bits = take_bits(draw_bits(draw_bits(stream, number), place), 0, BITS)
        return start + ((bits * size) >> BITS)

    tail = draw(0)
    for number in range(1, ROUNDS + 1):
        tail = torch.where(_can_serve(head * total + tail, known), tail, draw(number))
    return torch.stack([head, tail]), _can_serve(head * total + tail, known)


def with_negatives(
    positives: Int[Tensor, "2 pairs"],
    node_ptr: Int[Tensor, " boundaries"],
    stream: Int[Tensor, ""],
    num_real_nodes: Int[Tensor, ""] | None = None,
) -> tuple[Int[Tensor, "2 labelled"], Float[Tensor, " labelled"]]:
    """Append new negative pairs to the positive ones, drawn as by `draw_negatives`.

    Returns the pairs, and their labels: 1 positive, 0 negative, NaN invalid, as are those of a
    padding graph, whose nodes come after `num_real_nodes`.
    """
    negatives, can_serve = draw_negatives(positives, node_ptr, stream)
    pairs = torch.cat([positives, negatives], dim=1)
    label = torch.cat([torch.ones_like(positives[0]), torch.zeros_like(negatives[0])]).float()
    counts = torch.cat([torch.ones_like(positives[0], dtype=torch.bool), can_serve])
    if num_real_nodes is not None:
        counts = counts & (pairs[0] < num_real_nodes)
    return pairs, label.masked_fill(~counts, torch.nan)


def _can_serve(
    drawn: Int[Tensor, " pairs"], known: Int[Tensor, " positives"]
) -> Bool[Tensor, " pairs"]:
    """Valid pairs: neither positive nor repeated."""
    ordered, order = drawn.sort(stable=True)
    is_repeated = torch.zeros_like(drawn, dtype=torch.bool)
    is_repeated[order[1:]] = ordered[1:] == ordered[:-1]
    if not known.shape[0]:
        return ~is_repeated
    place = torch.searchsorted(known, drawn).clamp_max(known.shape[0] - 1)
    return ~is_repeated & (known[place] != drawn)

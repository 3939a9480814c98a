"""SMILES -> atoms and bonds with the integer columns of OGB (needs the extra `molecules`)."""

from array import array
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY
from graphmamba.data.parallel import track
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

ATOMIC_NUMBERS, DEGREES, CHARGES, HYDROGENS, RADICALS = 118, 10, 5, 8, 4
"""Largest values that have an entry of their own; all others share the last entry of a column."""
CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
HYBRIDISATIONS = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPES = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
STEREOS = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")


def read_smiles(
    smiles: Sequence[str],
    names: Callable[[int], str] = "molecule {}".format,
    rejected: list[int] | None = None,
) -> GraphColumns:
    """Turn each molecule into a graph; hydrogens stay implicit, each bond goes both ways.

    The numbers of those that RDKit rejects go to `rejected`; without it the first of them raises,
    by the name that `names` gives to its number.
    """
    chem = import_rdkit()

    def molecules() -> Iterator[Any]:
        for number, text in enumerate(track(smiles, "Molecules", len(smiles))):
            molecule = chem.MolFromSmiles(text)
            if molecule is None or not molecule.GetNumAtoms():
                if rejected is not None:
                    rejected.append(number)
                    continue
                raise UserError(f"{names(number)}: smiles must name a molecule, got {text!r}")
            yield molecule

    return columns_of_molecules(molecules(), names)


def columns_of_molecules(
    molecules: Iterable[Any], names: Callable[[int], str] = "molecule {}".format
) -> GraphColumns:
    """Lay molecules of RDKit end to end, atoms as they are, each bond both ways."""
    chem = import_rdkit()
    sizes: list[int] = []
    bond_counts: list[int] = []
    # flat integers: millions of tuples would keep the garbage collector busy
    atoms, bonds = array("i"), array("i")
    # what cannot be read is reported by our own message, in one line; ends with this function
    quiet = chem.rdBase.BlockLogs()
    read_atom, read_bond = _atom_reader(chem), _bond_reader(chem)
    for number, molecule in enumerate(molecules):
        sizes.append(molecule.GetNumAtoms())
        bond_counts.append(molecule.GetNumBonds())
        try:
            for atom in molecule.GetAtoms():
                atoms.extend(read_atom(atom))
            for bond in molecule.GetBonds():
                bonds.extend(read_bond(bond))
        except RuntimeError as error:
            # the lines after these two are of RDKit's own source
            reason = " ".join(str(error).split("\n")[:2]).replace("\t", "")
            raise UserError(
                f"{names(number)}: every atom must say how many hydrogens it has, as [CH3] does, "
                f"got one that RDKit cannot count them of: {reason}"
            ) from error
    del quiet
    both = _matrix(bonds, 2 + len(BOND_VOCABULARY)).repeat_interleave(2, dim=0)
    # a bond's second row is the way back
    both[1::2, :2] = both[1::2, :2].flip(1)
    return GraphColumns(
        node_ptr=boundaries(torch.tensor(sizes, dtype=torch.int64)),
        edge_ptr=boundaries(2 * torch.tensor(bond_counts, dtype=torch.int64)),
        edge_index=both[:, :2].T.contiguous(),
        nodes={"x": _matrix(atoms, len(ATOM_VOCABULARY))},
        edges={"edge_attr": both[:, 2:].contiguous()},
        source="SMILES",
    )


def descriptors_of(smiles: Iterable[str]) -> Float[Tensor, "molecules descriptors"]:
    """All of RDKit's descriptors of molecules that it reads; 0 where one is not a finite number."""
    chem = import_rdkit()
    from rdkit.Chem import Descriptors

    quiet = chem.rdBase.BlockLogs()
    rows = [
        [function(molecule) for _, function in Descriptors.descList]
        for molecule in map(chem.MolFromSmiles, smiles)
    ]
    del quiet
    largest = np.finfo(np.float32).max
    numbers = np.nan_to_num(np.array(rows, dtype=np.float64), posinf=0.0, neginf=0.0)
    return torch.from_numpy(numbers.clip(-largest, largest).astype(np.float32))


def _matrix(values: MutableSequence[int], columns: int) -> Int[Tensor, "rows columns"]:
    return torch.from_numpy(np.array(values, dtype=np.int64)).reshape(-1, columns)


def import_rdkit() -> Any:
    """Return RDKit's chemistry, or say how to get it."""
    try:
        from rdkit import Chem
    except ImportError as missing:
        raise UserError(
            "SMILES need RDKit: pip install 'graphmamba[molecules]', or rdkit"
        ) from missing
    return Chem


def _places(kind: object, names: Sequence[str]) -> dict[object, int]:
    """Entry of each value of an enumeration of RDKit."""
    return {getattr(kind, name): place for place, name in enumerate(names)}


def _atom_reader(chem: Any) -> Callable[[Any], tuple[int, ...]]:
    chirality = _places(chem.ChiralType, CHIRALITIES)
    hybridisation = _places(chem.HybridizationType, HYBRIDISATIONS)

    def read(atom: Any) -> tuple[int, ...]:
        number, charge = atom.GetAtomicNum() - 1, atom.GetFormalCharge()
        return (
            number if 0 <= number < ATOMIC_NUMBERS else ATOMIC_NUMBERS,
            chirality.get(atom.GetChiralTag(), len(CHIRALITIES)),
            min(atom.GetTotalDegree(), DEGREES + 1),
            charge + CHARGES if abs(charge) <= CHARGES else 2 * CHARGES + 1,
            min(atom.GetTotalNumHs(), HYDROGENS + 1),
            min(atom.GetNumRadicalElectrons(), RADICALS + 1),
            hybridisation.get(atom.GetHybridization(), len(HYBRIDISATIONS)),
            int(atom.GetIsAromatic()),
            int(atom.IsInRing()),
        )

    return read


def _bond_reader(chem: Any) -> Callable[[Any], tuple[int, ...]]:
    kind, stereo = _places(chem.BondType, BOND_TYPES), _places(chem.BondStereo, STEREOS)

    def read(bond: Any) -> tuple[int, ...]:
        return (
            bond.GetBeginAtomIdx(),
            bond.GetEndAtomIdx(),
            kind.get(bond.GetBondType(), len(BOND_TYPES)),
            # the column has no catch-all; RDKit's newer kinds of stereo are nearest to "any"
            stereo.get(bond.GetStereo(), len(STEREOS) - 1),
            int(bond.GetIsConjugated()),
        )

    return read

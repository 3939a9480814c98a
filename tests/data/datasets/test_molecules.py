"""SMILES -> the integer columns of OGB."""

import pytest
import torch

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY
from graphmamba.data.datasets.molecules import read_smiles
from graphmamba.errors import UserError

pytest.importorskip("rdkit")


def test_columns_of_a_known_molecule() -> None:
    # an acetate ion: a methyl group, a carbonyl group, a charged oxygen
    columns = read_smiles(["CC(=O)[O-]"])
    assert columns.nodes["x"].tolist() == [
        [5, 0, 4, 5, 3, 0, 2, 0, 0],
        [5, 0, 3, 5, 0, 0, 1, 0, 0],
        [7, 0, 1, 5, 0, 0, 1, 0, 0],
        [7, 0, 1, 4, 0, 0, 1, 0, 0],
    ]
    assert columns.edge_index.tolist() == [[0, 1, 1, 2, 1, 3], [1, 0, 2, 1, 3, 1]]
    bonds = [[0, 0, 0]] * 2 + [[1, 0, 1]] * 2 + [[0, 0, 1]] * 2
    assert columns.edges["edge_attr"].tolist() == bonds


def test_chirality_rings_and_stereo() -> None:
    columns = read_smiles(["C[C@H](N)O", "c1ccccc1", "F/C=C/F", "F/C=C\\F"])
    chirality, aromatic, ring = columns.nodes["x"][:, [1, 7, 8]].T
    assert int(chirality[1]) in {1, 2}
    assert aromatic.tolist() == ring.tolist() == [0] * 4 + [1] * 6 + [0] * 8
    stereo = columns.edges["edge_attr"][:, 1]
    assert stereo[stereo > 0].tolist() == [2, 2, 1, 1]
    assert columns.node_ptr.tolist() == [0, 4, 10, 14, 18]


def test_values_out_of_the_ordinary_are_caught_by_the_last_entry() -> None:
    columns = read_smiles(["*", "[Fe+6]", "[He]"])
    assert columns.nodes["x"][0, 0] == ATOM_VOCABULARY[0] - 1
    assert columns.nodes["x"][1, 3] == ATOM_VOCABULARY[3] - 1
    assert columns.edge_index.shape == (2, 0)
    assert columns.edges["edge_attr"].shape == (0, len(BOND_VOCABULARY))
    assert (columns.nodes["x"] < torch.tensor(ATOM_VOCABULARY)).all()


@pytest.mark.parametrize("smiles", ["", "C(", "xyz"])
def test_what_is_no_molecule_is_named(smiles: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"row 1: smiles must name a molecule, got '"):
        read_smiles(["CC", smiles], names="row {}".format)
    assert capfd.readouterr().err == ""

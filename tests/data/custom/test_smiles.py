"""CSV files of molecules."""

from pathlib import Path

import pytest

from graphmamba.data.catalog import MOLECULES, Task
from graphmamba.data.custom import read_smiles_csv
from graphmamba.errors import UserError

TEXT = "name,smiles,heavy,split\nethanol,CCO,3.5,train\nwater,O,1,test\n"


def write(folder: Path, text: str = TEXT) -> Path:
    (folder / "molecules.csv").write_text(text)
    return folder / "molecules.csv"


def test_molecules_become_graphs(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    own = read_smiles_csv(write(tmp_path), "heavy")
    assert own.columns.node_ptr.tolist() == [0, 3, 4]
    assert own.columns.edge_ptr.tolist() == [0, 4, 4]
    assert own.columns.nodes["x"][:, 0].tolist() == [5, 5, 7, 7]
    assert own.columns.graphs["y"].tolist() == [[3.5], [1.0]]
    assert own.columns.split is not None
    assert own.columns.split.tolist() == [0, 2]
    assert own.features == MOLECULES
    assert own.task == Task("graph", 1, "l1", "mean_absolute_error")


def test_a_molecule_that_is_none_is_told(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    with pytest.raises(UserError, match=r"molecules\.csv, line 3: .* got 'X\('"):
        read_smiles_csv(write(tmp_path, TEXT.replace(",O,", ",X(,")), "heavy")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("smile,heavy\nC,1\n", "line 1: column 'smiles' must be there"),
        ("smiles,weight\nC,1\n", "line 1: column 'heavy' must be there"),
        ("smiles,heavy\nC,1.5\n,2\n", "line 3: smiles must not be empty"),
        ("smiles,heavy,split\nC,1,later\nC,2,train\n", "line 2: split must be one of"),
        ("smiles,heavy\nC,1.5\nC,x\n", "line 3: heavy must be all numbers"),
    ],
)
def test_what_is_wrong_is_told_before_any_molecule_is_read(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(UserError, match=told):
        read_smiles_csv(write(tmp_path, text), "heavy")

"""CSV files of molecules."""

from pathlib import Path

import pytest
import torch

from graphmamba.data.catalog import MOLECULES, Task
from graphmamba.data.custom import DataOptions, open_custom, read_smiles_csv
from graphmamba.data.custom.open import read_unlabelled
from graphmamba.errors import UserError
from graphmamba.training.predict import Predictions, write_predictions

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
    assert own.columns.split.tolist() == [0, 2]
    assert own.features == MOLECULES
    assert own.task == Task("graph", 1, "l1", "mean_absolute_error")


def test_molecules_that_rdkit_rejects_are_left_out_and_listed(
    tmp_path: Path,
) -> None:
    pytest.importorskip("rdkit")
    rows = ["X(,0.5,test", "CCO,3.5,train", ",9.5,test", "O,1,test", "C,2,train", "C(,7,train"]
    text = "\n".join(["smiles,heavy,split", *rows])
    path, options = write(tmp_path, text), DataOptions(target="heavy")
    with pytest.warns(UserWarning, match="3 of 6 rows are left out, since RDKit rejects"):
        open_custom(path, options, tmp_path / "sets")
    for _ in range(2):
        # once is enough
        own = open_custom(path, options, tmp_path / "sets")
        assert own.store.tables["graphs"].given("y").tolist() == [[3.5], [1.0], [2.0]]
        assert own.store.split_ids("test").tolist() == [1]
    (listed,) = (tmp_path / "sets").rglob("*.skipped.csv")
    lines = listed.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["row", "0", "2", "5"]
    with pytest.raises(UserError, match=r"line 4: smiles must not be empty, got ''"):
        open_custom(path, DataOptions(target="heavy", on_error="raise"), tmp_path / "sets")
    found = read_unlabelled(path, options)
    assert [found.graph_name(graph) for graph in range(3)] == ["1", "3", "4"]
    with pytest.raises(UserError, match="smiles must name a molecule somewhere, got 1 rows"):
        read_smiles_csv(write(tmp_path, "smiles,heavy\nX(,1.5\n"), "heavy")


def test_lines_of_predictions_are_those_of_the_table(tmp_path: Path) -> None:
    values = torch.tensor([[1.0], [2.0], [3.0]])
    parts = [
        Predictions(
            "regression", ("heavy",), torch.tensor(graphs), None, None, values[graphs], None
        )
        for graphs in ([0, 1], [2])
    ]
    names = {0: "1", 1: "3", 2: "4"}
    rows = write_predictions(tmp_path / "out.csv", parts, names.__getitem__, skipped=[0, 2, 5])
    lines = (tmp_path / "out.csv").read_text().split()
    assert rows == 6
    assert lines == ["graph,heavy", "0,", "1,1", "2,", "3,2", "4,3", "5,"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smile,heavy\nC,1\n", "line 1: column 'smiles' must be there"),
        ("smiles,weight\nC,1\n", "line 1: column 'heavy' must be there"),
        ("smiles,heavy,split\nC,1,later\nC,2,train\n", "line 2: split must be one of"),
        ("smiles,heavy\nC,1.5\nC,x\n", "line 3: heavy must be all numbers"),
        ("graph,heavy\nwater,1\n", "got .*; of tables of nodes and edges"),
    ],
)
def test_what_is_wrong_is_reported_before_any_molecule_is_read(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_smiles_csv(write(tmp_path, text), "heavy")

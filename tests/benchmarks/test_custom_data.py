"""The table of custom data: cells go to one record, and molecules travel without RDKit."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.helpers.processes import run_apart
from tests.helpers.scripts import load_script

SMILES = ("C", "CC", "CCO", "c1ccccc1", "O=C=O", "not a molecule", "N#N", "CO", "C#N", "CCN", "OO")


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["custom_data.py", "--commit", "0123abc", *map(str, words)])
    script.main()


def test_cells_of_one_set_and_of_a_prepared_one_share_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    script = load_script("custom_data", monkeypatch)
    rows = [f"{each},{number % 3}.5" for number, each in enumerate(SMILES)]
    (tmp_path / "few.csv").write_text("smiles,a\n" + "\n".join(rows) + "\n")
    read = script.molecules("few.csv", ("a",), "regression")
    monkeypatch.setitem(script.SETS, "few", script.Set("few", read, 2, ("gine",)))
    record, prepared = tmp_path / "record.json", tmp_path / "few.npz"
    few = "--epochs", 1, "--record", record
    run(script, monkeypatch, tmp_path, "--only", "few/gine", "--splits", 0, *few)
    run(script, monkeypatch, tmp_path, "--only", "few", "--prepare", prepared)

    for split in (0, 1):
        truth, found = read(tmp_path, split), script.read_prepared(prepared, split)
        assert found.smiles == truth.smiles
        assert (found.kind, found.task, found.features) == (
            "regression",
            truth.task,
            truth.features,
        )
        stores = [script.GraphStore(each.columns) for each in (truth, found)]
        batches = [store.batch(torch.arange(len(store))).to_dict() for store in stores]
        assert batches[0].keys() == batches[1].keys()
        assert all(torch.equal(each, batches[1][name]) for name, each in batches[0].items())
        assert torch.equal(found.split, truth.split)

    # a cell that is there is not made again, and others are added
    (tmp_path / "few.csv").unlink()
    run(script, monkeypatch, "--prepared", prepared, "--only", "few/gine", *few)
    cells = json.loads(record.read_text())
    assert list(cells) == ["few/gine/0", "few/gine/1"]
    assert all(cell["environment"]["threads"] for cell in cells.values())
    assert all(np.isfinite(cell["test"]) for cell in cells.values())


def test_the_table_points_out_what_was_trained_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("custom_data", monkeypatch)
    cell = {"metric": "accuracy", "test": 0.5, "cpu_seconds": 1, "environment": {"threads": 1}}
    record = {"cora/gcn/0": cell, "cora/sage/0": cell | {"environment": {"threads": None}}}
    assert "GCN 0.500 (1 of 5), SAGE (on a GPU) 0.500 (1 of 5)" in script.table(record)


def test_the_script_starts_without_pandas_and_rdkit() -> None:
    run_apart(
        "import sys\n"
        "sys.modules |= dict.fromkeys(['pandas', 'rdkit', 'lightgbm'])\n"
        "sys.path.insert(0, 'benchmarks')\n"
        "import custom_data\n"
    )

"""Files of other people, as they were published."""

from pathlib import Path

import pytest

from graphmamba.data.custom import DataOptions, open_custom
from graphmamba.data.custom.open import read_unlabelled

pytestmark = pytest.mark.realdata


def test_enzymes_are_read_from_their_zip(data_folder: Path, tmp_path: Path) -> None:
    own = open_custom(data_folder / "own" / "ENZYMES.zip", DataOptions(folds=10), tmp_path)
    tables = own.store.tables
    sizes = [int(tables[name].ptr[-1]) for name in ("graphs", "nodes", "edges")]
    assert sizes == [600, 19580, 74564]
    assert own.features.node_columns == 18 + 3
    assert own.class_names == ("1", "2", "3", "4", "5", "6")
    y = tables["graphs"].given("y")
    for split, count in (("train", 80), ("validation", 10), ("test", 10)):
        counts = y[own.store.split_ids(split)].bincount().tolist()
        assert counts == [count] * 6


def test_esol_is_split_by_scaffold(data_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = data_folder / "own" / "delaney-processed.csv"
    target = "measured log solubility in mols per litre"
    own = open_custom(path, DataOptions(target=target, split="scaffold"), tmp_path)
    assert own.store.split.bincount().tolist() == [902, 113, 113]


def test_tox21_is_read_without_what_rdkit_rejects(data_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = data_folder / "own" / "tox21.csv.gz"
    targets = ("NR-AR", "SR-p53")
    with pytest.warns(UserWarning, match="8 of 8,014 rows are left out") as reported:
        own = open_custom(path, DataOptions(target=targets), tmp_path)
    assert len(own.store) == 8006
    listed = Path(str(reported[0].message).split("SMILES: ")[1].split(" lists")[0])
    assert len(listed.read_text().splitlines()) == 9
    found = read_unlabelled(path, DataOptions(target=targets))
    assert len(found.skipped) == 8
    assert found.graph_name(8005) == "8013"

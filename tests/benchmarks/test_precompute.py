import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from graphmamba.data.cache import open_or_build
from graphmamba.data.catalog import CATALOG
from graphmamba.data.transforms.precompute import COLUMN_OF
from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("precompute", monkeypatch)


def run(study: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> dict:
    given = ["precompute.py", "--commit", "0123abc", "--out", str(out), *words]
    monkeypatch.setattr(sys, "argv", given)
    study.main()
    return json.loads(out.read_text())


def test_every_column_is_measured(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "LONGEST", 40)
    written = run(study, monkeypatch, tmp_path / "new" / "times.json", "--graphs", "6")
    assert (written["graphs"], written["source"]) == (6, "drawn")
    assert set(written["columns"]) == set(COLUMN_OF.values())
    for one in written["columns"].values():
        assert one["graphs_a_second"] == pytest.approx(6 / one["seconds"])
    assert written["columns"]["random_walk"]["asked"]["walks"] == 20
    assert written["environment"]["commit"] == "0123abc"


def test_columns_of_a_built_set_can_be_chosen(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = study.draw(8)
    open_or_build(tmp_path / "sets", {"name": "some"}, lambda: columns)
    (place,) = (path for path in (tmp_path / "sets").iterdir() if path.is_dir())
    chosen = ["--column", "degree_profile", "--column", "random_walk"]
    written = run(study, monkeypatch, tmp_path / "times.json", "--cache", str(place), *chosen)
    assert [*written["columns"]] == ["degree_profile", "random_walk"]
    assert (written["graphs"], written["edges"]) == (8, len(columns.edge_index[0]))


def test_drawn_graphs_have_the_sizes_of_peptides(study: ModuleType) -> None:
    peptides, columns = CATALOG["peptides-func"], study.draw(4000)
    counts = columns.node_ptr.diff()
    assert float(counts.double().mean()) == pytest.approx(peptides.mean_nodes, rel=0.05)
    assert float(columns.edge_ptr.diff().double().mean()) == pytest.approx(
        peptides.mean_edges, rel=0.05
    )
    assert int(counts.max()) == 444
    # the first atom of each graph is reached from all others
    source, target = columns.edge_index
    assert torch.equal((source > target).sum(), counts.sum() - len(counts))

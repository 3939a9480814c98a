import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from graphmamba.data.cache import open_or_build
from graphmamba.data.catalog import CATALOG
from graphmamba.data.store import GraphStore
from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("loading", monkeypatch)


def run(study: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> dict:
    few = ["--graphs", "20", "--batch", "8", "--epochs", "1", "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", ["loading.py", *few, "--out", str(out), *words])
    study.main()
    return json.loads(out.read_text())


def test_both_loaders_are_measured(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run(study, monkeypatch, tmp_path / "new" / "loading.json")
    assert written["graphs"] == 20
    assert set(written["ms_a_batch"]) == {"store", "pyg", "store_one_by_one"}
    assert written["times_faster"] == written["epochs"][0]["pyg"] / written["epochs"][0]["store"]
    assert written["wanted"]["times_faster"] == 20
    assert written["ms_to_open"] > 0
    assert written["columns"]["y"] == "float32 [8, 10]"
    assert written["environment"]["commit"] == "0123abc"


def test_a_built_set_can_be_measured(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = GraphStore.from_pyg(study.generate(30)).columns()
    open_or_build(tmp_path / "sets", {"name": "some"}, lambda: columns)
    (place,) = (path for path in (tmp_path / "sets").iterdir() if path.is_dir())
    written = run(study, monkeypatch, tmp_path / "loading.json", "--cache", str(place))
    assert written["source"] == "PyG graphs"
    assert written["nodes"] == int(columns.node_ptr[20])


def test_generated_graphs_have_the_sizes_of_peptides(study: ModuleType) -> None:
    graphs = study.generate(400)
    nodes = torch.tensor([float(graph.num_nodes) for graph in graphs])
    edges = torch.tensor([float(graph.num_edges) for graph in graphs])
    peptides = CATALOG["peptides-func"]
    assert float(nodes.mean()) == pytest.approx(peptides.mean_nodes, rel=0.1)
    assert float(edges.mean()) == pytest.approx(peptides.mean_edges, rel=0.1)

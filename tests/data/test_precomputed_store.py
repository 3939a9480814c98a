"""Pre-computed columns are kept, each by its own recipe."""

from pathlib import Path

import pytest
import torch

from graphmamba.data import precomputed_store
from graphmamba.data.catalog import CATALOG
from graphmamba.data.own import read_folder
from graphmamba.data.positional import Precompute
from graphmamba.data.precompute import add_precomputed
from graphmamba.data.precomputed_store import with_precomputed
from graphmamba.data.store import GraphStore
from tests.helpers.synthetic import synthetic_graphs

STORE = GraphStore.from_pyg(synthetic_graphs(CATALOG["peptides-func"], 5, nodes=(8, 14)))
RECIPE = {"set": "five molecules"}


def test_the_store_has_the_columns_and_keeps_its_own(tmp_path: Path) -> None:
    asked = Precompute(3, 2, 2, True, True)
    done = with_precomputed(STORE, asked, tmp_path, RECIPE).columns()
    truth = add_precomputed(STORE.columns(), asked)
    assert set(done.nodes) == set(truth.nodes)
    for name, rows in truth.nodes.items():
        assert torch.equal(done.nodes[name].nan_to_num(9.0), rows.nan_to_num(9.0))
    pairs = truth.pairs["expander_index"]
    assert torch.equal(done.pairs["expander_index"].index, pairs.index)
    assert torch.equal(done.pairs["expander_index"].ptr, pairs.ptr)
    assert torch.equal(done.edge_index, STORE.columns().edge_index)
    assert set(STORE.columns().nodes) == {"x"}


def test_nothing_is_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    compute = precomputed_store.precomputed

    def count(columns: object, part: Precompute) -> object:
        computed.extend(part.recipe())
        return compute(columns, part)  # type: ignore[arg-type]

    monkeypatch.setattr(precomputed_store, "precomputed", count)
    with_precomputed(STORE, Precompute(frequencies=3, walks=2), tmp_path, RECIPE)
    with_precomputed(STORE, Precompute(frequencies=3, has_clusters=True), tmp_path, RECIPE)
    assert computed == ["laplacian", "random_walk", "cluster"]
    with_precomputed(STORE, Precompute(frequencies=4), tmp_path, RECIPE)
    with_precomputed(STORE, Precompute(frequencies=3), tmp_path, {"set": "five others"})
    assert computed[3:] == ["laplacian", "laplacian"]


def test_batches_have_the_columns(tmp_path: Path) -> None:
    done = with_precomputed(STORE, Precompute(2, 0, 2), tmp_path, RECIPE)
    batch = done.batch(torch.tensor([3, 1]))
    assert batch.laplacian_vectors.shape == (batch.num_nodes, 2)
    assert batch.expander_index.max() == batch.num_nodes - 1


def test_own_graphs_go_into_a_store(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("graph,node,a\np,1,0.5\np,2,1\nq,1,2\n")
    (tmp_path / "edges.csv").write_text("graph,source,target\np,1,2\np,2,2\n")
    (tmp_path / "pairs.csv").write_text("graph,source,target,near\nq,1,1,1\np,2,1,0\n")
    batch = GraphStore(read_folder(tmp_path, "near").columns).batch(torch.tensor([1, 0]))
    assert batch.x.flatten().tolist() == [2, 0.5, 1]
    assert batch.edge_index.tolist() == [[1, 2], [2, 2]]
    assert batch.edge_label_index.tolist() == [[0, 2], [0, 1]]
    assert batch.edge_label.tolist() == [1, 0]

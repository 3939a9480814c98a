"""Files as people have them: packed, parquet, edge lists, arrays of OGB, data sets of PyG."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, Dataset, InMemoryDataset

from graphmamba.data.custom import DataOptions, open_custom, read_folder, read_npz
from graphmamba.data.custom.open import is_custom, read_graphs, read_unlabelled
from graphmamba.errors import UserError
from tests.helpers.own_files import write_rings, write_rows

TASTE = DataOptions(target="taste", undirected=True)


@pytest.mark.parametrize("ending", [".csv.gz", ".parquet"])
def test_packed_tables_are_those_that_were_packed(ending: str, tmp_path: Path) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    folder = write_rings(tmp_path / "rings", graphs=4)
    plain = open_custom(folder, TASTE, tmp_path / "sets")
    for file in list(folder.iterdir()):
        packed = file.with_name(file.name.replace(".csv", ending))
        if ending == ".parquet":
            pd.read_csv(file).to_parquet(packed)
        else:
            packed.write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    found = open_custom(folder, TASTE, tmp_path / "sets")
    assert found.class_names == plain.class_names
    for place in range(4):
        for name in ("x", "edge_index", "y"):
            assert torch.equal(found.store[place][name], plain.store[place][name])
    (folder / "nodes.csv").touch()
    with pytest.raises(UserError, match=r"must hold one table of nodes, got nodes\.csv, nodes"):
        open_custom(folder, TASTE, tmp_path / "sets")


@pytest.mark.parametrize("ending", [".csv.gz", ".parquet"])
def test_packed_molecules_are_read(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table = pd.DataFrame({"smiles": ["CCO", "C", "O"], "a": [1, 0, None], "b": [1.0, None, 0.0]})
    path = tmp_path / f"set{ending}"
    table.to_csv(path, index=False) if ending == ".csv.gz" else table.to_parquet(path)
    assert is_custom(path)
    own = open_custom(path, DataOptions(target=("a", "b")), tmp_path / "sets")
    y = own.store.tables["graphs"].given("y")
    assert y.nan_to_num(-1).tolist() == [[1, 1], [0, -1], [-1, 0]]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"must be a (parquet file|table) that can be read"):
        open_custom(path, DataOptions(target=("a", "b")), tmp_path / "sets")


def test_lists_of_edges_with_weights_need_no_nodes(tmp_path: Path) -> None:
    edges = [["Weg 1", "Ä b", "ö", 0.5], ["Weg 1", "Ä b", "ö", 0.5], ["Weg 1", "ö", "ö", 2],
             ["2", "x", "Ä b", 3]]  # fmt: skip
    write_rows(tmp_path / "edges.csv", ["graph", "source", "target", "weight"], edges)
    write_rows(tmp_path / "graphs.csv", ["graph", "y"], [["Weg 1", 1.5], ["2", 2.5]])
    columns = read_folder(tmp_path, "y", undirected=True).columns
    assert columns.node_ptr.tolist() == [0, 2, 4]
    assert columns.edge_index.tolist() == [[0, 0, 1, 1, 1, 0, 1], [1, 1, 1, 0, 0, 1, 0]]
    weights = [0.5, 0.5, 2, 0.5, 0.5, 3, 3]
    assert columns.edges["edge_attr"][:, 0].tolist() == weights
    found = read_unlabelled(tmp_path, DataOptions(target="y"), ("edges/weight",))
    assert (found.graph_name(0), found.node_name(0, 0)) == ("Weg 1", "Ä b")
    write_rows(tmp_path / "graphs.csv", ["graph", "y"], [["Weg 1", 1.5], ["2", 2.5], ["3", 1]])
    with pytest.raises(UserError, match=r"graph must have a node in nodes\.csv, got '3'"):
        read_folder(tmp_path, "y")


def test_lone_nodes_and_answers_in_words_are_kept(tmp_path: Path) -> None:
    nodes = [["a", "x", "True"], ["a", "lone", "False"], ["b", "only", "true"]]
    write_rows(tmp_path / "nodes.csv", ["graph", "node", "hot"], nodes)
    write_rows(tmp_path / "edges.csv", ["graph", "source", "target"], [["a", "x", "x"]])
    write_rows(tmp_path / "graphs.csv", ["graph", "y"], [["a", 1.5], ["b", 2.5]])
    columns = read_folder(tmp_path, "y").columns
    assert columns.nodes["x"].tolist() == [[1], [0], [1]]
    assert (columns.node_ptr.tolist(), columns.edge_ptr.tolist()) == ([0, 2, 3], [0, 1, 1])


def test_arrays_of_ogb_are_read(tmp_path: Path) -> None:
    arrays = {
        "num_nodes_list": [2, 1],
        "num_edges_list": [2, 0],
        "edge_index": [[0, 1], [1, 0]],
        "node_feat": [[1], [2], [3]],
        "edge_feat": [[4], [5]],
        "labels": [[0.5], [1.5]],
    }
    np.savez(tmp_path / "ogb.npz", **arrays)
    own = read_npz(tmp_path / "ogb.npz")
    assert own.columns.node_ptr.tolist() == [0, 2, 3]
    assert own.columns.edges["edge_attr"].tolist() == [[4], [5]]
    assert own.columns.graphs["y"].tolist() == [[0.5], [1.5]]
    assert read_unlabelled(tmp_path / "ogb.npz", DataOptions()).columns.graphs == {}
    np.savez(tmp_path / "two.npz", **arrays, x=[[1], [2], [3]])
    with pytest.raises(UserError, match="x must be given once, got num_nodes_list"):
        read_npz(tmp_path / "two.npz")
    np.savez(tmp_path / "other.npz", nodes=[1])
    with pytest.raises(UserError, match=r"must be among node_ptr, .* got 'nodes'"):
        read_npz(tmp_path / "other.npz")
    np.savez(tmp_path / "less.npz", edge_index=[[0], [1]], edge_ptr=[0, 1])
    message = (
        r"'node_ptr' must be there beside .* got edge_index \[2, 1\] of int64, edge_ptr \[2\] of"
    )
    with pytest.raises(UserError, match=message):
        read_npz(tmp_path / "less.npz")


RING = torch.tensor([[0, 1, 2], [1, 2, 0]])
GRAPHS = [
    Data(x=torch.ones(3, 1), edge_index=RING, y=torch.tensor([n % 2]), smiles="C" * n)
    for n in range(10)
]


class Memory(InMemoryDataset):
    def __init__(self) -> None:
        super().__init__()
        self.data, self.slices = self.collate(GRAPHS)

    def get_idx_split(self) -> dict[str, torch.Tensor]:
        return {"train": torch.arange(6), "valid": torch.arange(6, 8), "test": torch.arange(8, 10)}


class Lazy(Dataset):
    def len(self) -> int:
        return len(GRAPHS)

    def get(self, idx: int) -> Data:
        return GRAPHS[idx]


@pytest.mark.parametrize("graphs", [Memory(), Lazy(), GRAPHS], ids=["memory", "lazy", "list"])
def test_data_sets_of_pyg_are_read(graphs: object) -> None:
    found, store = read_graphs(graphs, DataOptions())
    assert found.columns.graphs["y"].tolist() == [0, 1] * 5
    sizes = [6, 2, 2] if isinstance(graphs, Memory) else [8, 1, 1]
    assert store.split.bincount().tolist() == sizes
    _, stated = read_graphs(graphs, DataOptions(split="random"))
    assert stated.split.bincount().tolist() == [8, 1, 1]

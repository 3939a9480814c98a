"""One graph whose nodes are split: by masks, by a column of a file, or drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmamba.data.custom import DataOptions, from_graphs, open_custom, read_folder, read_npz
from graphmamba.data.custom.open import read_graphs
from graphmamba.data.custom.split import draw_node_split, read_masks
from graphmamba.errors import UserError
from tests.helpers.own_files import write_rows

FOLDS = DataOptions(folds=3)
SPLIT = [0, 0, 1, 2, 2, 3]
EDGES = np.array([[0, 1], [1, 2], [3, 3], [4, 2]])


def masks(split: list[int] = SPLIT) -> dict[str, Any]:
    numbers = np.array(split)
    names = ("train_mask", "val_mask", "test_mask")
    return {name: numbers == number for number, name in enumerate(names)}


def test_published_names_and_ours_make_the_same_graph(tmp_path: Path) -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    both = np.concatenate([EDGES, EDGES[[0, 1, 3]][:, ::-1]]).T
    np.savez(tmp_path / "ours.npz", x=x, y=y, edge_index=both, **masks())
    other = {name: np.stack([~mask, mask]) for name, mask in masks().items()}
    published = {f"{name}s": mask for name, mask in other.items()}
    np.savez(tmp_path / "theirs.npz", node_features=x, node_labels=y, edges=EDGES, **published)
    ours = read_npz(tmp_path / "ours.npz").columns
    theirs = read_npz(tmp_path / "theirs.npz", split_index=1).columns
    assert ours.nodes["node_split"].tolist() == SPLIT
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert all(torch.equal(ours.nodes[name], theirs.nodes[name]) for name in ours.nodes)
    assert theirs.source.endswith("split 1 of 2 (data.split_index)")
    upright = {name: torch.from_numpy(mask).T for name, mask in other.items()}
    graph = Data(x=torch.tensor(x), y=torch.tensor(y), edge_index=torch.tensor(both), **upright)
    for taken in (
        from_graphs(graph, split_index=1),
        read_graphs(graph, DataOptions(split_index=1))[0],
    ):
        assert taken.task.level == "node"
        assert taken.columns.nodes["node_split"].tolist() == SPLIT


@pytest.mark.parametrize(
    ("changed", "index", "message"),
    [
        ({"test_mask": None}, 0, "must be given together, got no test_mask"),
        ({"val_mask": np.zeros(6, bool)}, 0, "val_mask must hold a node, got none of 6"),
        ({"val_mask": masks()["train_mask"]}, 0, r"node 0 in train_mask and val_mask \(2 nodes"),
        ({"val_mask": np.ones(5, bool)}, 0, "val_mask must be true or false for each of 6 nodes"),
        ({"val_mask": np.arange(6)}, 0, "val_mask must be true or false for each of 6 nodes"),
        ({"val_mask": np.ones((6, 3), bool)}, 0, "train_mask 2, val_mask 3"),
        ({}, 2, "split_index must be in 0 to 1"),
    ],
)
def test_masks_that_make_no_split_are_reported(
    changed: dict[str, Any], index: int, message: str
) -> None:
    arrays: dict[str, Any] = masks() | {"train_mask": np.stack([masks()["train_mask"]] * 2)}
    found = {
        name: torch.from_numpy(mask)
        for name, mask in (arrays | changed).items()
        if mask is not None
    }
    with pytest.raises(UserError, match=message):
        read_masks(found, 6, index, "here")


def write_one(folder: Path, split: list[str]) -> Path:
    folder.mkdir()
    rows = [[f"Knöten {n}", n, "ab"[n % 2], word] for n, word in enumerate(split)]
    write_rows(folder / "nodes.csv", ["node", "size", "kind", "split"], rows)
    pairs = [[f"Knöten {a}", f"Knöten {b}"] for a, b in EDGES]
    write_rows(folder / "edges.csv", ["source", "target"], pairs)
    return folder


def test_a_column_of_nodes_says_the_split_and_one_graph_needs_no_name(tmp_path: Path) -> None:
    words = ["train", "Train", "val", "test", "test", ""]
    own = read_folder(write_one(tmp_path / "one", words), "kind")
    assert own.columns.nodes["node_split"].tolist() == SPLIT
    assert own.columns.nodes["x"].tolist() == [[float(n)] for n in range(6)]
    assert own.columns.edge_index.T.tolist() == EDGES.tolist()
    for wrong, message in (
        (["x", *words[1:]], "line 2: split must be one of train, validation, test or empty"),
        (["train"] * 6, "split must name a node for validation"),
    ):
        with pytest.raises(UserError, match=message):
            read_folder(write_one(tmp_path / message[:6], wrong), "kind")


def test_a_drawn_split_has_every_class_in_its_shares(tmp_path: Path) -> None:
    y = torch.tensor([0] * 50 + [1] * 10 + [-1] * 3)
    found = draw_node_split(y, (0.6, 0.2, 0.2), seed=3)
    assert found[y == 0].bincount().tolist() == [30, 10, 10]
    assert found[y == 1].bincount().tolist() == [6, 2, 2]
    assert found[y == -1].tolist() == [3, 3, 3]
    np.savez(tmp_path / "one.npz", y=y, edge_index=np.zeros((2, 0), int))
    options = DataOptions(split_ratios=(0.6, 0.2, 0.2), split_seed=3)
    store = open_custom(tmp_path / "one.npz", options, tmp_path / "kept").store
    assert torch.equal(store.tables["nodes"].given("node_split"), found)
    assert store.split_size("validation") == 12
    with pytest.raises(UserError, match="validation must hold nodes, and 2 labelled nodes are"):
        draw_node_split(torch.tensor([0, 1]), (0.6, 0.2, 0.2), 0)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (np.zeros((2, 0), int), "a graph must have edges for three splits, got 0 different"),
        (np.array([[0, 1, 2, 2], [1, 0, 2, 2]]), "for three splits, got 1 different"),
    ],
)
def test_links_need_edges_for_three_splits(tmp_path: Path, edges: Any, message: str) -> None:
    np.savez(tmp_path / "few.npz", x=np.ones((3, 1)), edge_index=edges)
    with pytest.raises(UserError, match=message):
        open_custom(tmp_path / "few.npz", DataOptions(level="link"), tmp_path / "kept")


def test_masks_of_graphs_and_an_index_without_masks_are_reported(tmp_path: Path) -> None:
    graph = Data(x=torch.ones(6, 1), y=torch.tensor([1.0]), edge_index=torch.tensor(EDGES.T))
    for name, mask in masks().items():
        graph[name] = torch.from_numpy(mask)
    with pytest.raises(UserError, match="train_mask splits nodes and must be left out"):
        from_graphs([graph, graph])
    path = tmp_path / "one.npz"
    np.savez(path, y=np.arange(60) % 2, edge_index=np.zeros((2, 0), int))
    with pytest.raises(UserError, match="split_index needs graphs with train_mask"):
        open_custom(path, DataOptions(split_index=1), tmp_path / "kept")
    with pytest.raises(UserError, match="split must be left out where the nodes of a graph are"):
        open_custom(path, DataOptions(split="random"), tmp_path / "kept")
    with pytest.raises(UserError, match=r"folds must be left out where .* got 3 for a graph"):
        read_graphs(Data(x=graph.x, y=torch.arange(6) % 2, edge_index=graph.edge_index), FOLDS)

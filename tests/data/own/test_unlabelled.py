"""Graphs to predict: read like those of the training, with or without labels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.own.feature_names import feature_names
from graphmamba.data.own.folder import read_folder
from graphmamba.data.own.options import OwnOptions
from graphmamba.data.own.unlabelled import read_unlabelled
from graphmamba.errors import UserError
from tests.helpers.own_files import write_numbers, write_rings, write_rows

TASTE = OwnOptions(label="taste", is_undirected=True)


def test_a_folder_is_read_as_in_training_but_for_labels(tmp_path: Path) -> None:
    folder = write_rings(tmp_path / "rings")
    labelled = read_folder(folder, "taste", is_undirected=True).columns
    found = read_unlabelled(folder, TASTE)
    assert torch.equal(found.columns.nodes["x"], labelled.nodes["x"])
    assert torch.equal(found.columns.edge_index, labelled.edge_index)
    assert found.columns.graphs == {}
    (folder / "graphs.csv").unlink()
    bare = read_unlabelled(folder, TASTE)
    assert torch.equal(bare.columns.edge_index, labelled.edge_index)
    assert bare.graph_name(3) == "g3"
    assert bare.node_name(1, 2) == "n2"


def test_labels_of_nodes_are_no_features(tmp_path: Path) -> None:
    write_rows(tmp_path / "nodes.csv", ["graph", "node", "w", "kind"], [["a", "x", 1, 0]])
    write_rows(tmp_path / "edges.csv", ["graph", "source", "target"], [])
    assert read_unlabelled(tmp_path, OwnOptions(label="kind")).columns.nodes["x"].tolist() == [[1]]


def test_pairs_need_no_answer(tmp_path: Path) -> None:
    write_rows(tmp_path / "nodes.csv", ["graph", "node"], [["a", "x"], ["a", "y"], ["b", "x"]])
    write_rows(tmp_path / "edges.csv", ["graph", "source", "target"], [["a", "x", "y"]])
    write_rows(tmp_path / "pairs.csv", ["graph", "source", "target"], [["a", "y", "x"]])
    pairs = read_unlabelled(tmp_path, OwnOptions()).columns.pairs["edge_label_index"]
    assert pairs.index.tolist() == [[1], [0]]
    assert pairs.ptr.tolist() == [0, 1, 1]


def test_arrays_with_and_without_labels(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "numbers.npz")
    whole = read_unlabelled(path, OwnOptions()).columns
    with np.load(path) as file:
        np.savez(tmp_path / "bare.npz", **{name: file[name] for name in file.files if name != "y"})
    bare = read_unlabelled(tmp_path / "bare.npz", OwnOptions())
    assert torch.equal(bare.columns.nodes["x"], whole.nodes["x"])
    assert (bare.graph_name(7), bare.node_name(7, 2)) == ("7", "2")


def test_pairs_of_arrays_are_checked(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "numbers.npz", graphs=2)
    with np.load(path) as file:
        arrays = dict(file)
    pairs = {"pair_ptr": np.array([0, 1, 2]), "edge_label_index": np.array([[0, 2], [1, 9]])}
    np.savez(path, **arrays, **pairs)
    with pytest.raises(UserError, match="edge_label_index must be a node of its graph, 0 to 2"):
        read_unlabelled(path, OwnOptions())
    pairs["edge_label_index"][1, 1] = 1
    np.savez(path, **arrays, **pairs)
    found = read_unlabelled(path, OwnOptions()).columns.pairs["edge_label_index"]
    assert found.index.tolist() == [[0, 2], [1, 1]]


def test_molecules(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    write_rows(tmp_path / "new.csv", ["smiles"], [["CCO"], ["C"]])
    assert read_unlabelled(tmp_path / "new.csv", OwnOptions()).columns.node_ptr.tolist() == [
        0,
        3,
        4,
    ]


def test_features_in_another_order_are_refused(tmp_path: Path) -> None:
    def write(*names: str) -> None:
        write_rows(tmp_path / "nodes.csv", ["graph", "node", *names], [["a", "x", 1, 2]])

    write_rows(tmp_path / "edges.csv", ["graph", "source", "target", "w"], [["a", "x", "x", 3]])
    write("mass", "charge")
    known = ("nodes/mass", "nodes/charge", "edges/w")
    assert feature_names(tmp_path, ("taste",)) == known
    read_unlabelled(tmp_path, OwnOptions(), known)
    write("charge", "mass")
    with pytest.raises(UserError, match=r"in their order, nodes/mass, .*; got nodes/charge"):
        read_unlabelled(tmp_path, OwnOptions(), known)


def test_blank_lines_above_the_names_hide_none(tmp_path: Path) -> None:
    folder = write_rings(tmp_path / "rings", graphs=2)
    for file in ("nodes.csv", "edges.csv"):
        (folder / file).write_text("\n\n" + (folder / file).read_text())
    known = feature_names(folder, TASTE.labels)
    assert known == ("nodes/size",)
    assert read_unlabelled(folder, TASTE, known).columns.nodes["x"].shape == (9, 1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"graph,node,gr\xf6\xdfe\n", "nodes.csv must be text in UTF-8"),
        (b"", "nodes.csv must begin with the names of its columns, got an empty file"),
        (b'graph,node,"size\n', "nodes.csv, line 1: unexpected end of data"),
        (b"\ngraph,node,size,size\n", "nodes.csv, line 2: column 'size' must occur once"),
        (None, "nodes.csv must be there, got no such file"),
    ],
    ids=["other letters", "empty", "cut", "twice", "missing"],
)
def test_names_are_read_as_strictly_as_rows(
    content: bytes | None, told: str, tmp_path: Path
) -> None:
    nodes = write_rings(tmp_path / "rings", graphs=2) / "nodes.csv"
    if content is None:
        nodes.unlink()
    else:
        nodes.write_bytes(content)
    with pytest.raises(UserError, match=told):
        feature_names(nodes.parent, TASTE.labels)
    with pytest.raises(UserError, match=told):
        read_folder(nodes.parent, "taste")


def test_named_arrays_in_another_order_are_refused(tmp_path: Path) -> None:
    path, known = tmp_path / "graphs.npz", ("nodes/mass", "nodes/charge", "edges/w")
    arrays = {
        "node_ptr": [0, 2],
        "edge_ptr": [0, 1],
        "edge_index": [[0], [1]],
        "x": [[1, 2], [3, 4]],
        "edge_attr": [[5]],
    }
    np.savez(path, **arrays)
    read_unlabelled(path, OwnOptions(), known)
    np.savez(path, **arrays, x_names=["mass", "charge"], edge_attr_names=["w"])
    assert feature_names(path, ()) == known
    read_unlabelled(path, OwnOptions(), known)
    np.savez(path, **arrays, x_names=["charge", "mass"], edge_attr_names=["w"])
    with pytest.raises(UserError, match=r"in their order, nodes/mass, .*; got nodes/charge"):
        read_unlabelled(path, OwnOptions(), known)
    for wrong in (["mass"], ["mass", "mass"], [1, 2]):
        np.savez(path, **arrays, x_names=wrong)
        with pytest.raises(UserError, match="x_names must be 2 different words, one for each"):
            read_unlabelled(path, OwnOptions())


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got no '.*absent\.npz'"):
        read_unlabelled(tmp_path / "absent.npz", OwnOptions())
    (tmp_path / "graphs.json").write_text("{}")
    with pytest.raises(UserError, match=r"\.npz or \.csv, got '.*graphs\.json'"):
        read_unlabelled(tmp_path / "graphs.json", OwnOptions())


def test_parts_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    folder = write_rings(tmp_path / "rings", graphs=3)
    assert read_unlabelled(folder, TASTE, has_split=True).columns.split is None
    rows = [["g0", "test"], ["g1", "train"], ["g2", "validation"]]
    write_rows(folder / "graphs.csv", ["graph", "split"], rows)
    split = read_unlabelled(folder, TASTE, has_split=True).columns.split
    assert split is not None
    assert split.tolist() == [2, 0, 1]
    assert read_unlabelled(folder, TASTE).columns.split is None


def molecules(place: Path) -> tuple[Path, str]:
    pytest.importorskip("rdkit")
    write_rows(place / "graphs.csv", ["smiles", "split"], [["CC", "later"], ["CO", "test"]])
    return place / "graphs.csv", "line 2: split must be one of train, validation, test, got 'later'"


def rings(place: Path) -> tuple[Path, str]:
    folder = write_rings(place / "rings", graphs=2)
    write_rows(folder / "graphs.csv", ["graph", "split"], [["g0", "later"], ["g1", ""]])
    return folder, "line 3: split must not be empty"


def arrays(place: Path, split: object) -> tuple[Path, str]:
    path = write_numbers(place / "numbers.npz", graphs=2)
    with np.load(path) as file:
        np.savez(path, **{**file, "split": np.array(split)})
    return path, "split must"


@pytest.mark.parametrize(
    "write",
    [
        molecules,
        rings,
        lambda place: arrays(place, [3, 0]),
        lambda place: arrays(place, ["later", "test"]),
    ],
    ids=["molecules", "folder", "numbers", "words"],
)
def test_parts_that_nobody_asks_for_may_be_anything(
    write: Callable[[Path], tuple[Path, str]], tmp_path: Path
) -> None:
    path, told = write(tmp_path)
    found = read_unlabelled(path, OwnOptions()).columns
    assert (len(found.node_ptr), found.split) == (3, None)
    with pytest.raises(UserError, match=told):
        read_unlabelled(path, OwnOptions(), has_split=True)

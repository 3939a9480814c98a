"""Custom graphs by their path: opened, kept, opened again; those to predict without labels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.catalog import Features, Task
from graphmamba.data.custom import CustomData, DataOptions, open_custom
from graphmamba.data.custom import open as own_open
from graphmamba.data.custom.csv import read_folder
from graphmamba.data.custom.open import read_unlabelled
from graphmamba.data.transforms import precompute
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.errors import UserError
from tests.helpers.own_files import write_rings, write_rows

NODES = "graph,node,charge\n" + "".join(f"g{graph},{node},{node}.5\n" for graph in range(9) for node in range(3))  # fmt: skip # noqa: E501
EDGES = "graph,source,target\n" + "".join(f"g{graph},0,{1 + graph % 2}\n" for graph in range(9))
GRAPHS = "graph,taste\n" + "".join(f"g{graph},{'sour' if graph % 2 else 'sweet'}\n" for graph in range(9))  # fmt: skip # noqa: E501
TASTE = DataOptions(target=("taste",))
TASTE_COLUMN = DataOptions(target="taste", undirected=True)


def write_folder(place: Path, graphs: str = GRAPHS) -> Path:
    place.mkdir(exist_ok=True)
    for name, text in (("nodes", NODES), ("edges", EDGES), ("graphs", graphs)):
        (place / f"{name}.csv").write_text(text)
    return place


def write_npz(path: Path) -> Path:
    np.savez(
        path, node_ptr=[0, 2, 3, 5], edge_ptr=[0, 1, 1, 1], edge_index=[[0], [1]], y=[0.5, 1, 2]
    )
    return path


def reject(*_: object) -> CustomData:
    raise AssertionError("what is kept must be opened")


def never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_folder", "read_npz", "read_smiles_csv"):
        monkeypatch.setattr(own_open, name, reject)


def test_a_folder_is_all_that_training_needs(tmp_path: Path) -> None:
    own = open_custom(write_folder(tmp_path / "fruit"), TASTE, tmp_path / "sets")
    assert own.features == Features("numbers", 1)
    assert own.task == Task("graph", 2, "cross_entropy", "accuracy", classes=2)
    assert own.class_names == ("sour", "sweet")
    assert own.store.source == "read from fruit"
    assert [len(own.store.split_ids(part)) for part in ("train", "validation", "test")] == [7, 1, 1]
    batch = own.store.batch(torch.tensor([1, 0]))
    assert batch.y.tolist() == [0, 1]
    assert batch.edge_index.tolist() == [[0, 3], [2, 4]]


def test_what_is_kept_is_opened_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {write_folder(tmp_path / "fruit"): TASTE, write_npz(tmp_path / "three.npz"): None}
    first = [open_custom(path, options, tmp_path / "sets") for path, options in given.items()]
    never_read(monkeypatch)
    for (path, options), before in zip(given.items(), first, strict=True):
        again = open_custom(path, options, tmp_path / "sets")
        assert (again.features, again.task, again.class_names) == (
            before.features, before.task, before.class_names,
        )  # fmt: skip
        assert torch.equal(again.store.split_ids("train"), before.store.split_ids("train"))
        assert torch.equal(again.store[2].y, before.store[2].y)


def test_other_content_or_options_are_read_anew(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "fruit")
    open_custom(folder, TASTE, tmp_path)
    write_folder(folder, GRAPHS.replace("sour", "bitter"))
    assert open_custom(folder, TASTE, tmp_path).class_names == ("bitter", "sweet")
    stated = DataOptions(target=("taste",), classes=("sweet", "bitter", "salty"), undirected=True)
    own = open_custom(folder, stated, tmp_path)
    assert own.task.outputs == 3
    assert own.store[0].edge_index.shape == (2, 2)


def test_another_split_shares_what_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "fruit")
    asked = Precompute(num_eigenvectors=2)
    first = open_custom(folder, TASTE, tmp_path).with_columns(asked)
    assert first.store[0].laplacian_vectors.shape == (3, 2)
    never_read(monkeypatch)
    monkeypatch.setattr(precompute, "precomputed", reject)
    kept = sorted(path.name for path in (tmp_path / "own").iterdir())
    options = DataOptions(target=("taste",), split_seed=5, split_ratios=(0.2, 0.2, 0.6))
    other = open_custom(folder, options, tmp_path).with_columns(asked)
    assert len(other.store.split_ids("test")) > len(first.store.split_ids("test"))
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == kept


def test_an_error_in_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "fruit", GRAPHS.replace("g3,sour", "g3,sour,3"))
    with pytest.raises(UserError, match=r"graphs.csv, line 5: a row must have 2 cells, got 3"):
        open_custom(folder, TASTE, tmp_path / "sets")
    assert not [
        path for path in (tmp_path / "sets").rglob("*") if path.suffix != ".lock" and path.is_file()
    ]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
@pytest.mark.parametrize("kept", ["*.json", "*/columns.safetensors"])
def test_what_is_kept_and_damaged_is_made_again(
    damage: Callable[[Path], object], kept: str, tmp_path: Path
) -> None:
    path = write_npz(tmp_path / "three.npz")
    asked = Precompute(walk_length=2)
    before = open_custom(path, data_dir=tmp_path).with_columns(asked)
    expected = before.store.batch(torch.arange(2)).random_walk.clone()
    for file in (tmp_path / "own").glob(kept):
        damage(file)
    again = open_custom(path, data_dir=tmp_path).with_columns(asked)
    assert (again.task, again.class_names) == (before.task, ("y0",))
    assert torch.equal(again.store.batch(torch.arange(2)).random_walk, expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [("none", "got no '.*none'"), ("graphs.txt", "must be a folder, or a .csv, .* file, got")],
)
def test_what_is_no_own_data_is_reported(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "graphs.txt").touch()
    with pytest.raises(UserError, match=message):
        open_custom(tmp_path / name, data_dir=tmp_path)


def test_a_folder_is_read_as_in_training_but_for_labels(tmp_path: Path) -> None:
    folder = write_rings(tmp_path / "rings")
    labelled = read_folder(folder, "taste", undirected=True).columns
    found = read_unlabelled(folder, TASTE_COLUMN)
    assert torch.equal(found.columns.nodes["x"], labelled.nodes["x"])
    assert torch.equal(found.columns.edge_index, labelled.edge_index)
    assert found.columns.graphs == {}
    (folder / "graphs.csv").unlink()
    bare = read_unlabelled(folder, TASTE_COLUMN)
    assert torch.equal(bare.columns.edge_index, labelled.edge_index)
    assert bare.graph_name(3) == "g3"
    assert bare.node_name(1, 2) == "n2"


def test_pairs_need_no_answer(tmp_path: Path) -> None:
    write_rows(tmp_path / "nodes.csv", ["graph", "node"], [["a", "x"], ["a", "y"], ["b", "x"]])
    write_rows(tmp_path / "edges.csv", ["graph", "source", "target"], [["a", "x", "y"]])
    write_rows(tmp_path / "pairs.csv", ["graph", "source", "target"], [["a", "y", "x"]])
    pairs = read_unlabelled(tmp_path, DataOptions()).columns.pairs["edge_label_index"]
    assert pairs.index.tolist() == [[1], [0]]
    assert pairs.ptr.tolist() == [0, 1, 1]


def test_features_in_another_order_are_rejected(tmp_path: Path) -> None:
    def write(*names: str) -> None:
        write_rows(tmp_path / "nodes.csv", ["graph", "node", *names], [["a", "x", 1, 2]])

    write_rows(tmp_path / "edges.csv", ["graph", "source", "target", "w"], [["a", "x", "x", 3]])
    write("mass", "charge")
    known = ("nodes/mass", "nodes/charge", "edges/w")
    assert read_unlabelled(tmp_path, DataOptions(), known).feature_names == known
    write("charge", "mass")
    with pytest.raises(UserError, match=r"in their order, nodes/mass, .*; got nodes/charge"):
        read_unlabelled(tmp_path, DataOptions(), known)


def test_named_arrays_in_another_order_are_rejected(tmp_path: Path) -> None:
    path, known = tmp_path / "graphs.npz", ("nodes/mass", "nodes/charge", "edges/w")
    arrays = {
        "node_ptr": [0, 2],
        "edge_ptr": [0, 1],
        "edge_index": [[0], [1]],
        "x": [[1, 2], [3, 4]],
        "edge_attr": [[5]],
    }
    np.savez(path, **arrays)
    read_unlabelled(path, DataOptions(), known)
    np.savez(path, **arrays, x_names=["mass", "charge"], edge_attr_names=["w"])
    assert read_unlabelled(path, DataOptions(), known).feature_names == known
    np.savez(path, **arrays, x_names=["charge", "mass"], edge_attr_names=["w"])
    with pytest.raises(UserError, match=r"in their order, nodes/mass, .*; got nodes/charge"):
        read_unlabelled(path, DataOptions(), known)
    for wrong in (["mass"], ["mass", "mass"], [1, 2]):
        np.savez(path, **arrays, x_names=wrong)
        with pytest.raises(UserError, match="x_names must be different words, one for each column"):
            read_unlabelled(path, DataOptions())


def test_parts_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    folder = write_rings(tmp_path / "rings", graphs=3)
    assert read_unlabelled(folder, TASTE_COLUMN, has_split=True).columns.split is None
    rows = [["g0", "test"], ["g1", "train"], ["g2", "validation"]]
    write_rows(folder / "graphs.csv", ["graph", "split"], rows)
    split = read_unlabelled(folder, TASTE_COLUMN, has_split=True).columns.split
    assert split.tolist() == [2, 0, 1]
    assert read_unlabelled(folder, TASTE_COLUMN).columns.split is None

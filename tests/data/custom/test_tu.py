"""The text files of TUDatasets."""

import contextlib
import zipfile
from pathlib import Path

import pytest
import torch

from graphmamba.data.custom import DataOptions, npz, open_custom
from graphmamba.data.custom.open import read_unlabelled
from graphmamba.data.custom.tu import read_tu
from graphmamba.errors import UserError

FILES = {
    "A": "1, 2\n2, 1\n4, 3\n3, 4\n3, 4\n",
    "graph_indicator": "1\n1\n2\n2\n3\n",
    "graph_labels": "-1\n1\n1\n",
    "graph_attributes": "0.5, 1\n1.5, 2\nnan, 3\n",
    "node_labels": "6\n8\n6\n6\n1\n",
    "node_attributes": "0.1, 1\n0.2, 2\n0.3, 3\n0.4, 4\n0.5, 5\n",
    "edge_labels": "0\n0\n1\n1\n1\n",
}


def write(folder: Path, **changed: str | None) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in (FILES | changed).items():
        if text is not None:
            (folder / f"DS_{name}.txt").write_text(text)
    return folder


def test_a_folder_and_a_zip_become_graphs(tmp_path: Path) -> None:
    folder = write(tmp_path / "DS")
    with zipfile.ZipFile(tmp_path / "DS.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"DS/{file.name}")
    for path in (folder, tmp_path / "DS.zip"):
        own = open_custom(path, data_dir=tmp_path / "sets")
        assert own.class_names == ("-1", "1")
        assert own.task.classes == 2
        graphs = [own.store[place] for place in range(3)]
        assert [graph.y.tolist() for graph in graphs] == [[0], [1], [1]]
        assert graphs[1].edge_index.tolist() == [[1, 0, 0], [0, 1, 1]]
        assert graphs[1].edge_attr.tolist() == [[0, 1], [0, 1], [0, 1]]
        x = [[0.1, 1, 0, 1, 0], [0.2, 2, 0, 0, 1]]
        assert torch.allclose(graphs[0].x, torch.tensor(x))
        assert graphs[2].num_nodes == 1


def test_other_files_may_be_what_is_predicted(tmp_path: Path) -> None:
    folder = write(tmp_path / "DS")
    own = read_tu(folder, "graph_attributes")
    assert own.class_names == ("graph_attributes.0", "graph_attributes.1")
    assert own.task.loss == "l1"
    assert own.columns.graphs["y"].isnan().tolist() == [[False, False]] * 2 + [[True, False]]
    own = read_tu(folder, "node_labels")
    assert own.task.level == "node"
    assert own.columns.nodes["y"].tolist() == [1, 2, 1, 1, 0]
    assert own.columns.nodes["x"].shape == (5, 2)
    (folder / "DS_graph_labels.txt").unlink()
    assert read_tu(folder).class_names[0] == "graph_attributes.0"


def test_nodes_in_any_order_lose_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "DS", graph_indicator="3\n1\n2\n1\n2\n", A="2, 4\n3, 5\n5, 3\n2, 4\n1, 1\n")  # fmt: skip # noqa: E501
    own = read_tu(folder)
    assert own.columns.edge_index.tolist() == [[0, 0, 0, 1, 0], [1, 1, 1, 0, 0]]
    assert own.columns.nodes["x"][:, 1].tolist() == [2, 4, 3, 5, 1]


def test_new_graphs_have_the_columns_of_the_training(tmp_path: Path) -> None:
    known = ("nodes/attribute.0", "nodes/attribute.1", "nodes/label=1", "nodes/label=6",
             "nodes/label=8", "nodes/label=9", "edges/label=0", "edges/label=1")  # fmt: skip
    folder = write(tmp_path / "DS")
    found = read_unlabelled(folder, DataOptions(), known)
    assert found.columns.nodes["x"][1].tolist() == pytest.approx([0.2, 2, 0, 0, 1, 0])
    assert (found.graph_name(2), found.node_name(1, 1)) == ("3", "4")
    with pytest.raises(UserError, match="line 2: a label must be one that the model was trained"):
        read_unlabelled(folder, DataOptions(), tuple(set(known) - {"nodes/label=8"}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"graph_indicator": None}, r"one pair of files \*_A.txt and \*_graph_indicator.txt"),
        ({"A": "1, 3\n" * 5}, r"DS_A.txt, line 1: an edge must be two nodes of one.*\[1, 3\]"),
        ({"A": "1, 2\n" * 4 + "1, 9\n"}, r"DS_A.txt, line 5: an edge .* 1 to 5, got \[1, 9\]"),
        ({"A": "1, b\n" * 5}, "DS_A.txt must hold numbers: could not convert .* 'b'"),
        ({"node_labels": "1\n"}, "DS_node_labels.txt must have 5 lines, got 1"),
        ({"graph_labels": "1\n2\n"}, "DS_graph_labels.txt must have 3 lines, got 2"),
        ({"node_attributes": "1\n2\nnan\n4\n5\n"}, "graph 1, row 0: x column 0 must be a finite"),
        ({"graph_indicator": "1\n1\n3\n3\n3\n"}, "graph 1: every graph must have a node, got none"),
        ({"graph_indicator": "1\n1\n2\n2\n2000000000\n"}, "line 5: a graph .* got 2000000000"),
        ({"graph_labels": None, "graph_attributes": None}, "got none, and no labels of graphs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported(
    changed: dict[str, str | None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        read_tu(write(tmp_path / "DS", **changed))


def test_a_foreign_zip_is_reported(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.txt", "")
    with pytest.raises(UserError, match=r"one pair of files .* of a TUDataset, got x.txt"):
        read_tu(tmp_path / "a.zip")
    with pytest.raises(UserError, match=r"target must be one of graph_labels, .* got taste"):
        read_tu(write(tmp_path / "DS"), "taste")


def test_zips_that_cannot_be_unpacked_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = write(tmp_path / "DS"), tmp_path / "DS.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, f"DS/{file.name}")
    content = path.read_bytes()
    for damaged in range(40, len(content), 7):
        path.write_bytes(
            content[:damaged] + bytes([content[damaged] ^ 255]) + content[damaged:][1:]
        )
        with contextlib.suppress(UserError):
            read_tu(path)
    path.write_bytes(content)
    monkeypatch.setattr(npz, "MOST_EXPANDED", 1)
    monkeypatch.setattr(npz, "MOST_RATIO", 0)
    with pytest.raises(UserError, match="must unpack to 0 times its size at most"):
        read_tu(path)

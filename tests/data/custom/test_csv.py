"""Folders of CSV files are read as documented, or rejected with file, line and value."""

import os
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmamba.data.catalog import Task
from graphmamba.data.custom import CustomData, LabelRule, read_folder
from graphmamba.errors import UserError

NODES = "graph,node,a,b,kind\nq,1,1,2,x\np,1,3,4,y\nq,2,5,6,x\np,z,7,8,x\n"
EDGES = "graph,source,target,w\nq,1,2,0.5\np,z,1,1\nq,2,1,2\n"
GRAPHS = "graph,mood,split\np,good,train\nq,bad,test\n"
PAIRS = "graph,source,target,near\nq,1,2,1\np,1,1,0\n"


def write(folder: Path, **files: str | None) -> Path:
    """The files above, but for those given; None leaves one out."""
    contents = {"nodes": NODES, "edges": EDGES, "graphs": GRAPHS, "pairs": PAIRS} | files
    for name, text in contents.items():
        if text is not None:
            (folder / f"{name}.csv").write_bytes(text.encode())
    return folder


def rejection(folder: Path, target: str | list[str] = "mood", **stated: object) -> str:
    with pytest.raises(UserError) as rejected:
        read_folder(folder, target, **stated)
    return str(rejected.value)


def test_rows_of_a_graph_need_not_stand_together(tmp_path: Path) -> None:
    nodes = NODES.replace(",kind", "").replace(",x", "").replace(",y", "")
    own = read_folder(write(tmp_path, nodes=nodes), "mood")
    columns = own.columns
    assert columns.node_ptr.tolist() == [0, 2, 4]
    assert columns.nodes["x"].tolist() == [[3, 4], [7, 8], [1, 2], [5, 6]]
    assert columns.edge_ptr.tolist() == [0, 1, 3]
    assert columns.edge_index.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert columns.edges["edge_attr"].tolist() == [[1.0], [0.5], [2.0]]
    assert columns.graphs["y"].tolist() == [1, 0]
    assert columns.split.tolist() == [0, 2]
    assert own.class_names == ("bad", "good")
    assert own.task == Task("graph", 2, "cross_entropy", "accuracy", classes=2)
    assert (own.features.node_columns, own.features.edge_columns) == (2, 1)


def test_labels_of_nodes(tmp_path: Path) -> None:
    own = read_folder(write(tmp_path, graphs=None), "kind")
    # without graphs.csv the graphs come in the order of their first nodes
    assert own.columns.nodes["x"].tolist() == [[1, 2], [5, 6], [3, 4], [7, 8]]
    assert own.columns.nodes["y"].tolist() == [0, 0, 1, 0]
    assert own.task.level == "node"
    assert own.columns.split is None


def test_labels_of_pairs(tmp_path: Path) -> None:
    nodes = "graph,node\np,1\np,z\nq,1\nq,2\n"
    own = read_folder(write(tmp_path, nodes=nodes), "near")
    pairs = own.columns.pairs["edge_label_index"]
    assert pairs.ptr.tolist() == [0, 1, 2]
    assert pairs.index.tolist() == [[0, 0], [0, 1]]
    assert pairs.columns["edge_label"].tolist() == [0.0, 1.0]
    assert own.task.level == "link"
    assert own.columns.nodes["x"].tolist() == [[1.0]] * 4


def test_undirected_edges_go_both_ways_and_loops_once(tmp_path: Path) -> None:
    edges = "graph,source,target,w\np,1,z,5\np,1,1,6\nq,1,2,7\nq,1,2,7\n"
    own = read_folder(write(tmp_path, edges=edges), "kind", undirected=True)
    columns = own.columns
    assert columns.edge_ptr.tolist() == [0, 3, 7]
    assert columns.edge_index[:, :3].tolist() == [[0, 0, 1], [1, 0, 0]]
    assert columns.edges["edge_attr"].flatten().tolist() == [5, 6, 5, 7, 7, 7, 7]


def test_one_node_and_no_edges(tmp_path: Path) -> None:
    folder = write(
        tmp_path, nodes="graph,node\ng,n\n", edges="graph,source,target\n", graphs=None, pairs=None
    )
    (folder / "graphs.csv").write_text("graph,t\ng,1.5\n")
    own = read_folder(folder, "t")
    assert own.columns.edge_index.shape == (2, 0)
    assert own.columns.edges == {}
    assert own.columns.graphs["y"].tolist() == [[1.5]]
    assert own.task == Task("graph", 1, "l1", "mean_absolute_error")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "graphs.csv").unlink()
    os.mkfifo(folder / "graphs.csv")
    assert "graphs.csv must be a file, got a pipe or device" in rejection(folder)


def test_a_label_column_is_nowhere_a_feature(tmp_path: Path) -> None:
    graphs = "graph,kind\np,1\nq,0\n"
    folder = write(tmp_path, graphs=graphs)
    assert "level" in rejection(folder, "kind")
    assert read_folder(folder, "kind", level="graph").columns.nodes["x"].shape == (4, 2)


@pytest.mark.parametrize("cell", ["inf", "nan", "word", "", "1e39"])
def test_features_are_finite_numbers(tmp_path: Path, cell: str) -> None:
    nodes = f"graph,node,a\np,1,1\np,z,{cell}\nq,1,True\nq,2,1\n"
    message = rejection(write(tmp_path, nodes=nodes))
    assert f"nodes.csv, line 3: a must be a finite number of 32 bits, got {cell!r}" in message
    assert ("of words each needs a column of 0 and 1" in message) == (cell == "word")


PLAIN = "graph,node\np,1\np,z\nq,1\nq,2\n"


@pytest.mark.parametrize(
    ("files", "reported"),
    [
        ({"nodes": "graph,a\np,1\n"}, r"nodes\.csv, line 1: column 'node' must be there"),
        ({"edges": "graph,source\np,1\n"}, r"edges\.csv, line 1: column 'target' must be there"),
        ({"graphs": "mood\ngood\nbad\n"}, r"graphs\.csv, line 1: column 'graph' must be there"),
        ({"edges": None}, r"edges\.csv must be there"),
        ({"nodes": PLAIN + "r,1\n"}, r"nodes\.csv, line 6: graph must be .* got 'r'"),
        ({"nodes": PLAIN + "p,z\n"}, r"nodes\.csv, line 6: node must be listed once, got 'z'"),
        ({"nodes": "graph,node\np,1\n"}, r"graphs\.csv, line 3: graph must have a node.*'q'"),
        ({"nodes": "graph,node\n"}, r"nodes\.csv must list a node"),
        ({"nodes": PLAIN + "p,\n"}, r"nodes\.csv, line 6: node must not be empty"),
        ({"graphs": GRAPHS + "p,good,test\n"}, r"graphs\.csv, line 4: graph must be listed once"),
        ({"graphs": GRAPHS.replace("test", "late")}, r"graphs\.csv, line 3: split .* got 'late'"),
        ({"edges": "graph,source,target\np,1,2\n"}, r"edges\.csv, line 2: target .* got '2'"),
        ({"edges": "graph,source,target\np,?,1\n"}, r"edges\.csv, line 2: source .* got '\?'"),
        ({"edges": "graph,source,target\ns,1,1\n"}, r"edges\.csv, line 2: graph .* got 's'"),
        ({"edges": "graph,source,target\np,1,1,2\n"}, r"edges\.csv, line 2: .* 3 cells, got 4"),
        ({"edges": "graph,source,target\np,1\n"}, r"edges\.csv, line 2: a row .* 3 cells, got 2"),
        ({"edges": ""}, r"edges\.csv must begin with different names of its columns, got ''"),
        ({"edges": "graph,source,target,source\n"}, r"edges\.csv must begin with different names"),
        ({"nodes": "graph;node\n1;2\n"}, "must have commas between its columns, got 'graph;node'"),
        ({"graphs": "graph,mood\np,1\nq,two\n"}, r"graphs\.csv, line 3: mood .* got 'two'"),
        ({"graphs": "graph,mood\np,\nq,\n"}, r"graphs\.csv, line 2: mood must hold a label"),
        ({"graphs": "graph,mood\np,1.5\nq,-inf\n"}, r"graphs\.csv, line 3: mood .* got '-inf'"),
    ],
    ids=lambda value: None if isinstance(value, dict) else re.sub(r"\W+", "-", value)[:50],
)
def test_what_is_wrong_is_reported(
    tmp_path: Path, files: dict[str, str | None], reported: str
) -> None:
    assert re.search(reported, rejection(write(tmp_path, **{"nodes": PLAIN, **files})))


@pytest.mark.parametrize(
    ("label", "stated", "reported"),
    [
        (
            "mode",
            {},
            "(`train --data.target`, otherwise `--target`) must be a column of gr",
        ),
        ("mode", {}, "of graphs.csv, nodes.csv, pairs.csv, got 'mode'; graphs.csv has mood; pairs"),
        ("graph", {}, "target must be none of"),
        ([], {}, "(`train --data.target`, otherwise `--target`) must name one column"),
        ([], {}, "got none; graphs.csv has mood; pairs.csv has near"),
        (["mood", "near"], {}, "column 'near' must be there"),
        ("mood", {"level": "node"}, "nodes.csv, line 1: column 'mood' must be there"),
        ("near", {"rule": LabelRule("regression")}, "pairs have one label"),
        ("mood", {"rule": LabelRule(classes=("bad", "so so"))}, "got 'good'"),
        ("mood", {"rule": LabelRule("regression")}, "line 2: mood must be a finite number"),
    ],
)
def test_what_is_wrongly_stated_is_reported(
    tmp_path: Path, label: str | list[str], stated: dict[str, object], reported: str
) -> None:
    assert reported in rejection(write(tmp_path, nodes=PLAIN), label, **stated)


cells = st.one_of(
    st.sampled_from(["p", "q", "1", "z", "0", "", "nan", "-1", '"', "1.5", "train", "\n", "é"]),
    st.text(max_size=4),
)
headers = st.permutations(["graph", "node", "source", "target", "mood", "split", "w"])


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    header = draw(headers)[: draw(st.integers(1, 7))]
    rows = draw(st.lists(st.lists(cells, min_size=len(header), max_size=len(header)), max_size=4))
    return "\n".join(",".join(row) for row in [header, *rows])


def outcome(folder: Path, **stated: object) -> CustomData | None:
    try:
        return read_folder(folder, "mood", **stated)
    except UserError:
        return None


@given(st.data())
def test_no_file_brings_anything_but_a_user_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    names = data.draw(st.sets(st.sampled_from(["nodes", "edges", "graphs", "pairs"]), min_size=1))
    texts = {
        name: data.draw(st.one_of(csv_texts(), st.text(max_size=30)).filter(_can_be_encoded))
        for name in sorted(names)
    }
    write(folder, **{"nodes": PLAIN, **texts})
    rule = data.draw(
        st.sampled_from([None, *map(LabelRule, ["classes", "regression", "multi-label"])])
    )
    own = outcome(folder, rule=rule)
    if own is not None:
        assert torch.isfinite(own.columns.nodes["x"]).all()


def _can_be_encoded(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)

"""Graphs of networkx and GraphML files."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from graphmamba.data.custom import DataOptions, LabelRule, open_custom
from graphmamba.data.custom.networkx import convert, from_networkx
from graphmamba.data.custom.open import read_graphs, read_unlabelled
from graphmamba.errors import UserError


def molecule(count: int, kind: str, year: int = 2020) -> nx.Graph:
    graph = nx.Graph(kind=kind, year=year)
    for node in range(count):
        graph.add_node(f"Atom Ä{node}", element="CO"[node % 2], mass=12.5 + node, hot=node == 0)
    nx.add_path(graph, list(graph), weight=0.5)
    return graph


GRAPHS = [molecule(3, "süß"), molecule(1, "sour"), molecule(2, "sour")]


def test_attributes_become_features() -> None:
    own = from_networkx(GRAPHS, "kind")
    assert own.class_names == ("sour", "süß")
    assert own.columns.graphs["y"].tolist() == [1, 0, 0]
    names = ("nodes/element=C", "nodes/element=O", "nodes/mass", "nodes/hot", "edges/weight")
    assert own.feature_names == names
    assert own.columns.nodes["x"][:2].tolist() == [[1, 0, 12.5, 1], [0, 1, 13.5, 0]]
    assert own.columns.edge_index.tolist() == [[0, 1, 1, 2, 0, 1], [1, 0, 2, 1, 1, 0]]
    assert own.columns.edges["edge_attr"].tolist() == [[0.5]] * 6
    again = convert(GRAPHS[1:], ("kind",), own.feature_names)
    assert again.graphs[0].x.tolist() == [[1, 0, 12.5, 1]]
    with pytest.raises(UserError, match="nodes/element must be one of C, as in training, got 'O'"):
        convert(GRAPHS, ("kind",), names[:1] + names[2:])
    with pytest.raises(UserError, match=r"that the model was trained on, .*; got no nodes/size"):
        convert(GRAPHS, ("kind",), ("nodes/size",))


def test_words_are_the_classes_that_are_named() -> None:
    own = from_networkx(GRAPHS, "kind", LabelRule(classes=("süß", "sour", "bitter")))
    assert own.class_names == ("süß", "sour", "bitter")
    assert own.columns.graphs["y"].tolist() == [0, 1, 1]


def test_a_mask_need_not_be_on_the_first_node() -> None:
    graph = nx.path_graph(3)
    for node, name in enumerate(("test_mask", "train_mask", "val_mask")):
        graph.nodes[node].update({"y": node % 2, name: True})
    assert from_networkx(graph).columns.nodes["node_split"].tolist() == [2, 0, 1]


def test_directed_and_repeated_edges_and_labels_of_nodes() -> None:
    graph = nx.MultiDiGraph([(0, 1), (0, 1), (1, 1)])
    nx.set_node_attributes(graph, {0: 1.5, 1: None}, "y")
    nx.set_node_attributes(graph, {0: [1, 2], 1: np.array([3, 4])}, "place")
    own = from_networkx(graph)
    assert own.columns.edge_index.tolist() == [[0, 0, 1], [1, 1, 1]]
    assert own.columns.nodes["x"].tolist() == [[1, 2], [3, 4]]
    assert own.task.level == "node"
    assert own.columns.nodes["y"].isnan().tolist() == [[False], [True]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: graph.add_node("new", mass=1.0), "nodes/element must be words alone"),
        (lambda graph: graph.nodes["Atom Ä0"].update(mass="x"), "nodes/mass must be words alone"),
        (lambda graph: graph.nodes["Atom Ä0"].update(mass=float("nan")), "must be a finite number"),
        (lambda graph: graph.graph.update(kind=3), "kind must be all numbers, or one column of w"),
        (lambda graph: graph.clear(), "graph 0: must have a node, got none"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported(change, message: str) -> None:
    graphs = [graph.copy() for graph in GRAPHS]
    change(graphs[0])
    with pytest.raises(UserError, match=message):
        from_networkx(graphs, "kind")


def test_a_target_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(UserError, match="got y; there is element, hot, kind, mass, year"):
        from_networkx(GRAPHS)


def test_files_of_graphml_are_read_and_predicted(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for number, graph in enumerate([*GRAPHS, *GRAPHS, *GRAPHS, GRAPHS[0]]):
        graph.graph["year"] = 2000 - number
        nx.write_graphml(graph, folder / f"g {number}.graphml")
    options = DataOptions(target="kind", split="time", split_column="year")
    own = open_custom(folder, options, tmp_path / "sets")
    assert own.class_names == ("sour", "süß")
    assert own.store.split.tolist() == [2, 1] + [0] * 8
    assert own.store[9].edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    known = ("nodes/mass", "nodes/element=C", "nodes/element=O", "edges/weight")
    found = read_unlabelled(folder / "g 1.graphml", DataOptions(target="kind"), known)
    assert found.columns.nodes["x"].tolist() == [[12.5, 1, 0]]
    assert (found.graph_name(0), found.node_name(0, 0)) == ("g 1", "Atom Ä0")
    (folder / "g 1.graphml").write_text("<graphml>")
    with pytest.raises(UserError, match=r"g 1.graphml must be GraphML that can be read"):
        open_custom(folder, options, tmp_path / "sets")


def test_graphs_from_python_are_split_by_their_attributes() -> None:
    graphs = [molecule(2, "ab"[n % 2], year=2000 - n) for n in range(10)]
    options = DataOptions(target="kind", split="time", split_column="year")
    split = read_graphs(graphs, options)[1].split
    assert split.tolist() == [2, 1] + [0] * 8
    year = DataOptions(target="year", task="regression")
    alone, among = (read_graphs(each, year)[0].columns.nodes["x"] for each in (graphs[0], graphs))
    assert torch.equal(alone, among[:2])


@pytest.mark.parametrize("is_word", [True, False])
def test_some_nodes_of_a_graph_say_their_split(is_word: bool) -> None:
    graph = nx.complete_bipartite_graph(3, 4)
    masks = {1: "train_mask", 3: "val_mask", 4: "test_mask", 6: "train_mask"}
    words = {"train_mask": "train", "val_mask": "Val", "test_mask": "test"}
    for node, mask in masks.items():
        graph.nodes[node].update({"split": words[mask]} if is_word else {mask: True})
        graph.nodes[node]["large"] = np.bool_(node > 3)
    found, store = read_graphs(graph, DataOptions(target="large"))
    assert store.tables["nodes"].given("node_split").tolist() == [3, 0, 3, 1, 2, 3, 0]
    assert found.columns.nodes["y"].tolist() == [-1, 0, -1, 0, 1, -1, 1]
    assert found.feature_names == ("nodes/bipartite",)


def test_a_node_in_no_known_split_is_named() -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: 1, 1: 0, 2: 1}, "y")
    graph.nodes[1]["split"] = "holdout"
    with pytest.raises(UserError, match=r"graph 0, node 1: split must be one of .*'holdout'"):
        from_networkx(graph)


def test_the_links_of_a_graph_need_no_target() -> None:
    options = DataOptions(level="link")
    found, store = read_graphs(nx.les_miserables_graph(), options)
    assert found.task.level == "link"
    assert store.is_transductive

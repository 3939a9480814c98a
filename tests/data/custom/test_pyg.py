"""Lists of PyG graphs become columns and a task."""

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, TemporalData

from graphmamba.commands.benchmarks import CATALOG
from graphmamba.data.catalog import Level, Task
from graphmamba.data.custom import LabelRule, from_graphs
from graphmamba.errors import UserError
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off

LOOP = torch.tensor([[0, 1], [1, 1]])


def graph(**columns: object) -> Data:
    return Data(**{"x": torch.ones(2, 3), "edge_index": LOOP, "y": torch.tensor([1])} | columns)


@pytest.mark.parametrize("name", CATALOG)
def test_graphs_of_every_benchmark_are_understood(name: str) -> None:
    benchmark = CATALOG[name]
    graphs = synthetic_graphs(benchmark, 6)
    own = from_graphs(graphs)
    assert own.task.level == benchmark.task.level
    assert own.columns.node_ptr[-1] == sum(each.num_nodes for each in graphs)
    assert torch.equal(own.columns.nodes["x"], torch.cat([each.x for each in graphs]).float())
    index = torch.cat([each.edge_index for each in graphs], dim=1)
    assert torch.equal(own.columns.edge_index, index)
    assert (own.features.edges == "none") == (benchmark.features.edges == "none")
    if own.task.level == "link":
        label = torch.cat([each.edge_label for each in graphs])
        pairs = own.columns.pairs["edge_label_index"]
        assert torch.equal(pairs.columns["edge_label"], label)
        assert pairs.ptr[-1] == len(label)
    else:
        table = own.columns.graphs if own.task.level == "graph" else own.columns.nodes
        assert torch.equal(table["y"], torch.cat([each.y for each in graphs]))


def test_labels_may_be_plain_numbers() -> None:
    own = from_graphs([graph(y=2), graph(y=0), graph(y=np.int64(1))])
    assert own.columns.graphs["y"].tolist() == [2, 0, 1]
    assert own.task == Task("graph", 3, "cross_entropy", "accuracy", classes=3)
    assert from_graphs([graph(y=True), graph(y=np.bool_(0))]).task.classes == 2
    targets = from_graphs([graph(y=1), graph(y=0.5)])
    assert targets.columns.graphs["y"].tolist() == [[1.0], [0.5]]
    assert targets.task.loss == "l1"


def test_one_node_without_edges_or_features() -> None:
    own = from_graphs([Data(num_nodes=1, y=torch.tensor([0.5]))] * 2)
    assert own.columns.nodes["x"].tolist() == [[1.0], [1.0]]
    assert own.columns.edge_ptr.tolist() == [0, 0, 0]
    assert own.task.loss == "l1"


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": torch.ones(2, 4)}, "graph 1: x must have the columns of graph 0"),
        ({"x": torch.full((2, 3), torch.nan)}, "graph 1, row 0: x column 0 must be a finite"),
        ({"edge_index": LOOP + 1}, "edge_index must hold nodes 0 to 1 in graph 1, got [1, 2]"),
        ({"edge_index": LOOP[0]}, "edge_index must have shape [2, pairs]"),
        ({"edge_index": LOOP.float()}, "edge_index must hold integers of shape [2, 4]"),
        ({"edge_attr": torch.ones(2, 1)}, "graph 0: edge_attr must be a tensor as in other graphs"),
        ({"y": None}, "graph 1: y must be a tensor or a number as in other graphs, got NoneType"),
        ({"y": "yes"}, "graph 1: y must be a tensor or a number, got str"),
        ({"x": [[1.0]]}, "graph 1: x must be a tensor, got list"),
        ({"y": torch.tensor([0, 1, 1])}, "graph 0: y must have 2 rows for level='node'"),
    ],
)
def test_what_is_wrong_is_reported(second: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as rejected:
        from_graphs([graph(), graph(**second)])
    assert message in str(rejected.value)


def test_graphs_say_which_part_they_are_in() -> None:
    words = ["test", "train", "validation", "train"]
    graphs = [graph(y=torch.tensor(place % 2), split=word) for place, word in enumerate(words)]
    for given in (graphs, Batch.from_data_list(graphs)):
        split = from_graphs(given).columns.split
        assert split.tolist() == [2, 0, 1, 0]
    assert from_graphs([graph(), graph(y=torch.tensor([0]))]).columns.split is None


def test_parts_that_are_no_words_of_files_are_reported() -> None:
    with pytest.raises(UserError, match=r"graph 1: split must be one of train, .* 'None'"):
        from_graphs([graph(split="train"), graph()])


@pytest.mark.parametrize("level", [None, "graph"])
def test_several_labels_of_a_graph_are_a_row_of_it(level: Level | None) -> None:
    rows = [graph(x=torch.ones(3, 1), y=torch.ones(1, 4))] * 2
    assert from_graphs(rows, level=level).task.outputs == 4
    vectors = [graph(x=torch.ones(3, 1), y=torch.ones(4))] * 2
    with pytest.raises(UserError, match=r"got shape \[4\]; 4 labels of one graph .* \[1, 4\]"):
        from_graphs(vectors, level=level)


def test_labels_of_two_kinds_need_a_level() -> None:
    both = graph(edge_label_index=LOOP, edge_label=torch.tensor([0.0, 1.0]))
    with pytest.raises(UserError, match="level must say which"):
        from_graphs([both])
    assert from_graphs([both], level="link").task.level == "link"
    assert from_graphs([both], LabelRule(classes=2), level="graph").task.level == "graph"
    with pytest.raises(UserError, match="graphs must hold a graph"):
        from_graphs([])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (HeteroData(), "got a heterogeneous graph; to_homogeneous"),
        ([HeteroData()], "got a heterogeneous graph"),
        (TemporalData(src=LOOP[0], dst=LOOP[1], t=LOOP[0]), "got a temporal one"),
        (graph(pos=torch.zeros(2, 3)), "layers that turn with a graph in 3-D are not supported"),
    ],
)
def test_graphs_of_other_kinds_are_rejected_with_what_is_supported(
    given: Any, message: str
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        from_graphs(given)


@pytest.mark.parametrize("name", ["edge_attr", "edge_label"])
def test_rows_do_not_slip_into_other_graphs(name: str) -> None:
    """As many in all as there should be, but not in each graph."""
    index = {"edge_attr": "edge_index", "edge_label": "edge_label_index"}[name]
    graphs = []
    for rows in (1, 3, 2):
        graph = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
        graph[index] = torch.tensor([[0, 1], [1, 2]])
        graph[name] = torch.ones(rows) if name == "edge_label" else torch.ones(rows, 1)
        if name == "edge_attr":
            graph.y = torch.tensor(rows % 2)
        graphs.append(graph)
    with pytest.raises(UserError, match=rf"graph 0: {name} must have 2 rows, got shape \[1"):
        from_graphs(graphs)


def test_edges_that_lie_elsewhere_are_not_passed_over() -> None:
    graph = Data(x=torch.ones(3, 1), y=torch.tensor(1))
    graph.adj_t = torch.eye(3).to_sparse()
    with pytest.raises(UserError, match="graph 0: edges must be in edge_index, got adj_t"):
        from_graphs([graph])


def test_weights_of_edges_are_a_feature_of_them() -> None:
    edges, y = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5])
    plain = Data(x=torch.ones(2, 1), edge_index=edges, edge_weight=torch.tensor([3, 4]), y=y)
    both = Data(**plain.to_dict(), edge_attr=torch.tensor([[1.0], [2.0]]))
    assert from_graphs([plain]).columns.edges["edge_attr"].tolist() == [[3], [4]]
    assert from_graphs([both]).columns.edges["edge_attr"].tolist() == [[1, 3], [2, 4]]
    assert plain.edge_weight.tolist() == [3, 4]
    plain.edge_weight = torch.ones(3)
    with pytest.raises(UserError, match="edge_weight must be a number for each of 2 edges"):
        from_graphs([plain])


def test_words_are_classes_by_their_names() -> None:
    edges = torch.tensor([[0], [1]])
    words = ["toxic", "safe", "", "toxic"]
    graphs = [Data(x=torch.ones(2, 1), edge_index=edges, y=word) for word in words]
    own = from_graphs(graphs)
    assert own.class_names == ("safe", "toxic")
    assert own.columns.graphs["y"].tolist() == [1, 0, -1, 1]
    nodes = [Data(x=torch.ones(2, 1), edge_index=edges, y=["b", "a"]) for _ in range(2)]
    assert from_graphs(nodes).columns.nodes["y"].tolist() == [1, 0, 1, 0]
    with pytest.raises(UserError, match="graph 0: y must be one of 'safe', 'odd', got 'toxic'"):
        from_graphs(graphs, LabelRule(classes=("safe", "odd")))
    with pytest.raises(UserError, match=r"y must hold numbers for task='regression', got \['toxic"):
        from_graphs(graphs, LabelRule("regression"))
    years = [Data(x=torch.ones(2, 1), edge_index=edges, y=word) for word in ("2021", "2019")]
    assert from_graphs(years).class_names == ("2019", "2021")
    assert from_graphs(years).columns.graphs["y"].tolist() == [1, 0]


def test_a_path_is_no_graph() -> None:
    with typecheck_off(), pytest.raises(UserError, match="got the path 'molecules': open_with_def"):
        from_graphs("molecules")

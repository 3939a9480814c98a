"""Batches of PyG are the graphs that they hold, and never one large graph."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddSelfLoops

from graphmamba.data.custom import from_graphs
from graphmamba.data.from_pyg import take_apart
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError

PATH = torch.tensor([[0, 1], [1, 2]])


def paths(count: int = 5) -> list[Data]:
    return [
        Data(x=torch.full((3, 2), float(place)), edge_index=PATH, y=torch.tensor([place % 2]))
        for place in range(count)
    ]


def forms() -> dict[str, object]:
    graphs = paths()
    return {
        "loader": DataLoader(graphs, batch_size=2),
        "batch": Batch.from_data_list(graphs),
        "followed": DataLoader(graphs, batch_size=3, follow_batch=["x"]),
        "mixed": [graphs[0], Batch.from_data_list(graphs[1:4]), graphs[4]],
        "of one graph": [Batch.from_data_list([graph]) for graph in graphs],
        "of a store": [GraphStore.from_pyg(graphs).batch(torch.arange(5))],
    }


@pytest.mark.parametrize("form", forms())
def test_batches_are_the_graphs_in_them(form: str) -> None:
    own, alone = from_graphs(forms()[form]), from_graphs(paths())
    assert own.columns.node_ptr.tolist() == [0, 3, 6, 9, 12, 15]
    assert torch.equal(own.columns.edge_index, alone.columns.edge_index)
    assert torch.equal(own.columns.nodes["x"], alone.columns.nodes["x"])
    assert own.columns.graphs["y"].tolist() == [0, 1, 0, 1, 0]
    assert own.task == alone.task
    store = GraphStore.from_pyg(forms()[form], exclude=["x_batch", "x_ptr", "graph_key"])
    assert len(store) == 5
    assert store[3].x.tolist() == [[3.0, 3.0]] * 3


def test_graphs_without_columns_of_nodes_keep_their_sizes() -> None:
    batch = Batch.from_data_list([Data(num_nodes=size) for size in (2, 1)])
    assert [graph.num_nodes for graph in take_apart(batch)] == [2, 1]


def changed(**columns: torch.Tensor) -> Batch:
    batch = Batch.from_data_list(paths())
    for name, values in columns.items():
        batch[name] = values
    return batch


@pytest.mark.parametrize(
    "batch",
    [
        Batch(x=torch.ones(4, 1), batch=torch.tensor([0, 0, 1, 1])),
        Batch(),
        changed(edge_index=PATH),
        AddSelfLoops()(changed()),
    ],
    ids=["made by hand", "empty", "cut", "transformed"],
)
def test_batches_that_cannot_be_taken_apart_are_rejected(batch: Batch) -> None:
    first = paths(1)[0]
    with pytest.raises(UserError, match=r"graphs\[1\] must be a Batch .* made or changed by hand"):
        list(take_apart([first, batch]))


def test_several_graphs_that_are_called_one_are_rejected() -> None:
    graph = paths(1)[0]
    graph.batch = torch.tensor([0, 0, 0])
    assert list(take_apart([graph])) == [graph]
    graph.batch = torch.tensor([0, 1, 1])
    with pytest.raises(UserError, match=r"graphs\[0\] must be one graph, .* batch tells several"):
        from_graphs([graph])

"""Labels of a store, and how many there are."""

import pytest
import torch

from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.labels import labelled_batch, labels_per_graph
from graphmamba.training.losses import Links
from tests.helpers.runs import tiny_experiment, tiny_store, with_gaps

LEVELS = {
    "mnist/graph-mamba": "graph",
    "peptides-struct/graph-mamba": "graph",
    "peptides-func/graph-mamba": "graph",
    "pattern/graph-mamba": "node",
    "pcqm-contact/graph-mamba": "link",
}


@pytest.mark.parametrize("has_gaps", [False, True], ids=["whole", "with gaps"])
@pytest.mark.parametrize("name", LEVELS)
def test_labels_are_counted_one_by_one(name: str, has_gaps: bool) -> None:
    store, level = tiny_store(tiny_experiment(name)), LEVELS[name]
    store = with_gaps(store, level) if has_gaps else store
    expected = []
    for number in range(len(store)):
        _, target = labelled_batch(store, torch.tensor([number]), level, (0,))
        label = target.label if isinstance(target, Links) else target
        is_known = ~label.isnan() if label.is_floating_point() else label >= 0
        expected.append(int(is_known.sum()))
    found = labels_per_graph(store, level)
    assert found.tolist() == expected
    assert (0 in expected) == has_gaps


def test_labels_that_all_nodes_of_a_graph_share_count_for_each() -> None:
    columns = tiny_store(tiny_experiment("pattern/graph-mamba")).columns()
    sizes = columns.node_ptr.diff()
    y = torch.arange(len(sizes)) % 3 - 1
    columns.nodes["y"] = y.repeat_interleave(sizes)
    store = GraphStore(columns)
    assert store.tables["nodes"].columns["y"].is_constant
    assert torch.equal(labels_per_graph(store, "node"), sizes * (y >= 0))


def test_right_pairs_count_where_wrong_ones_are_drawn() -> None:
    columns = tiny_store(tiny_experiment("pcqm-contact/graph-mamba")).columns()
    pairs = columns.pairs["edge_label_index"]
    del pairs.columns["edge_label"]
    assert torch.equal(labels_per_graph(GraphStore(columns), "link"), pairs.ptr.diff())


def test_a_store_without_pairs_has_no_labels() -> None:
    columns = tiny_store(tiny_experiment("pcqm-contact/graph-mamba")).columns()
    pairs = columns.pairs["edge_label_index"]
    pairs.columns["edge_label"] = pairs.columns["edge_label"][:0]
    columns.pairs["edge_label_index"] = type(pairs)(
        torch.zeros_like(pairs.ptr), pairs.index[:, :0], pairs.columns
    )
    assert not labels_per_graph(GraphStore(columns), "link").any()


def test_graphs_without_any_label_column_are_refused() -> None:
    columns = tiny_store(tiny_experiment()).columns()
    del columns.graphs["y"]
    with pytest.raises(UserError, match="graphs must have labels 'y' for each graph, got none"):
        labels_per_graph(GraphStore(columns), "graph")

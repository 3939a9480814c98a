"""Tasks and columns whose entries contradict one another are rejected."""

from typing import Any

import pytest

from graphmamba.data.catalog import Features, Task
from graphmamba.errors import UserError
from tests.helpers.typecheck import typecheck_off

SINGLE = "weighted_binary_cross_entropy"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (("graphs", 2, "l1", "mean_absolute_error"), "level must be one of 'graph', 'node', 'link"),
        (("graph", 0, "l1", "mean_absolute_error"), "outputs must be at least 1, got 0"),
        (("graph", 2, "l1", "accuracy"), "metric of graph regression must be one of 'mean_absol"),
        (("graph", 2, "l1", "accuracy", 2), "loss of graph classification must be one of 'cross_e"),
        (("graph", 5, "cross_entropy", "accuracy", 3), "outputs of cross_entropy must be one of 3"),
        (("graph", 3, "cross_entropy", "average_precision", 3), "must be one of 'accuracy', 'bal"),
        (("node", 2, SINGLE, "accuracy_sbm", 2), "loss of node classification must be one of 'cro"),
        (("node", 1, SINGLE, "accuracy_sbm", 3), "loss of node classification must be one of 'cro"),
        (("graph", 1, "l1", "mean_absolute_error", 1), "classes must be 0, or 2 at least, got 1"),
        (("node", 0, "link_l1", "mrr"), "loss of node regression must be one of 'l1', 'mse'"),
        (("link", 1, "l1", "mean_absolute_error"), "loss of link prediction must be one of 'link"),
    ],
)
def test_a_task_makes_sense(entries: tuple[Any, ...], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        Task(*entries)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (("number", 5), "nodes must be one of 'atoms', 'numbers', got 'number'"),
        (("atoms", 5), "node_columns must be 9 for 'atoms', got 5"),
        (("numbers", 0), "node_columns must be 1 at least for 'numbers', got 0"),
        (("numbers", 5, "bonds", 2), "edge_columns must be 3 for 'bonds', got 2"),
        (("numbers", 5, "numbers", 0), "edge_columns must be 1 at least for 'numbers', got 0"),
        (("numbers", 5, "none", 2), "edge_columns must be 0 for 'none', got 2"),
    ],
)
def test_columns_make_sense(entries: tuple[Any, ...], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        Features(*entries)

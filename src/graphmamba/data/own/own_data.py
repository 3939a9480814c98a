"""What reading a user's graphs gives: columns, and what they are there for."""

from dataclasses import dataclass

from graphmamba.data.catalog import Features, Level, LossName, MetricName, Task
from graphmamba.data.own.labels import Kind, Labels
from graphmamba.data.tables import GraphColumns

MEASURES: dict[Kind, tuple[LossName, MetricName]] = {
    "classes": ("cross_entropy", "accuracy"),
    "multi-label": ("binary_cross_entropy", "average_precision"),
    "regression": ("l1", "mean_absolute_error"),
}


@dataclass(frozen=True)
class OwnData:
    """A user's graphs, ready for the store and for building a model."""

    columns: GraphColumns
    features: Features
    task: Task
    names: tuple[str, ...] = ()
    """Classes by their number; or, where labels are not classes, the label columns."""


def numbers_of(columns: GraphColumns) -> Features:
    """Describe columns of plain numbers."""
    edges = columns.edges.get("edge_attr")
    return Features(
        node_columns=columns.nodes["x"].shape[1],
        edges="none" if edges is None else "numbers",
        edge_columns=0 if edges is None else edges.shape[1],
    )


def task_of(level: Level, labels: Labels) -> Task:
    """Choose how right and wrong are measured from what the labels are."""
    if level == "link":
        return Task("link", 0, "link_cross_entropy", "mrr")
    loss, metric = MEASURES[labels.kind]
    is_classes = labels.kind == "classes"
    outputs = len(labels.names) if is_classes else labels.values.shape[1]
    return Task(level, outputs, loss, metric, classes=outputs if is_classes else 0)

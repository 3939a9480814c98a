"""What the graphs of a set look like: sizes, degrees, labels, diameters."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.graph_columns import GraphColumns

DIAMETERS = 50
"""Graphs whose diameter is computed, spread evenly over the set."""


@dataclass(frozen=True)
class Summary:
    """Figures of all graphs of a set."""

    source: str
    parts: list[int]
    """Graphs for training, validation and test; all are training where there is no split."""
    nodes: Int[Tensor, " graphs"]
    edges: Int[Tensor, " graphs"]
    degrees: Int[Tensor, " degrees"]
    """How many nodes have 0, 1, 2, ... outgoing edges."""
    labels: dict[str, int]
    """How often each class occurs; empty where labels are no classes."""
    diameters: Int[Tensor, " sampled"]
    """Longest shortest path of some graphs, taken as undirected; of their parts if they fall apart.
    """


def summarise(columns: GraphColumns, sample: int = DIAMETERS) -> Summary:
    """Compute the figures of a set; `sample` graphs are measured for their diameter."""
    graphs = len(columns.node_ptr) - 1
    split = columns.split if columns.split is not None else torch.zeros(graphs, dtype=torch.int64)
    chosen = torch.linspace(0, graphs - 1, min(sample, graphs)).round().long().tolist()
    return Summary(
        source=columns.source,
        parts=split.long().bincount(minlength=3).tolist(),
        nodes=columns.node_ptr.diff(),
        edges=columns.edge_ptr.diff(),
        degrees=_degrees(columns),
        labels=_labels(columns),
        diameters=torch.tensor([_diameter(columns, graph) for graph in chosen], dtype=torch.int64),
    )


def _degrees(columns: GraphColumns) -> Int[Tensor, " degrees"]:
    first = torch.repeat_interleave(columns.node_ptr[:-1], columns.edge_ptr.diff())
    total = int(columns.node_ptr[-1])
    return torch.bincount(columns.edge_index[0] + first, minlength=total).bincount()


def _labels(columns: GraphColumns) -> dict[str, int]:
    y = columns.nodes.get("y", columns.graphs.get("y"))
    if y is None:
        return {}
    if not y.is_floating_point():
        return {str(label): count for label, count in enumerate(y.flatten().bincount().tolist())}
    if not bool(((y == 0) | (y == 1)).all()):
        return {}
    # of several labels at once: how often each of them is set
    counts = y.reshape(len(y), -1).sum(dim=0).long().tolist()
    return {str(label): count for label, count in enumerate(counts)}


def _diameter(columns: GraphColumns, graph: int) -> int:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import shortest_path

    size = int(columns.node_ptr[graph + 1] - columns.node_ptr[graph])
    begin, end = columns.edge_ptr[graph : graph + 2].tolist()
    source, target = columns.edge_index[:, begin:end].numpy()
    matrix = coo_matrix(([1.0] * (end - begin), (source, target)), shape=(size, size))
    distance = torch.from_numpy(shortest_path(matrix.tocsr(), directed=False, unweighted=True))
    reached = distance[distance.isfinite()]
    return int(reached.max()) if reached.numel() else 0

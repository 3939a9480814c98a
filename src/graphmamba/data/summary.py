"""Statistics of a data set: sizes, degrees, labels, diameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import global_edges, track
from graphmamba.data.splits import SPLITS
from graphmamba.data.tables import LINKS, NODE_SPLIT, PAIR_SPLIT, GraphColumns
from graphmamba.errors import UserError

Item = TypeVar("Item")
DIAMETERS = 50  # number of graphs whose diameter is computed, evenly spread
EXACT_UP_TO = 1_000
"""Nodes up to which distances between all pairs are computed, which takes a second at most."""


@dataclass(frozen=True)
class Summary:
    """Figures of all graphs of a set."""

    source: str
    split_sizes: list[int]
    """Graphs for training, validation and test; all are training where there is no split."""
    split_unit: str  # what they count: graphs, nodes or pairs
    nodes: Int[Tensor, " graphs"]
    edges: Int[Tensor, " graphs"]
    degrees: Int[Tensor, " degrees"]  # how many nodes have 0, 1, 2, ... outgoing edges
    labels: dict[str, int]  # how often each class occurs; empty where labels are no classes
    answers: dict[str, int]  # number of labels, per column for multi-label tasks
    values: dict[str, Float[Tensor, " known"]]  # known values of each target; empty for classes
    unlabelled: int  # number of missing labels
    pairs: Int[Tensor, " graphs"] | None
    """Labelled pairs per graph; None if links are not predicted."""
    diameters: Int[Tensor, " sampled"]
    """Longest shortest path of some graphs, taken as undirected; of their components if they fall
    apart."""
    has_exact_diameters: bool
    """Whether all diameters are exact; those of large graphs are lower bounds."""

    @property
    def targets(self) -> dict[str, tuple[float, float]]:
        """Mean and deviation of each target."""
        known = {name: values.double() for name, values in self.values.items()}
        return {
            name: (float(each.mean()), float(each.std(correction=0))) if len(each) else (nan, nan)
            for name, each in known.items()
        }


def summarise(columns: GraphColumns, sample: int = DIAMETERS, names: Sequence[str] = ()) -> Summary:
    """Compute the figures of a set."""
    graphs = len(columns.node_ptr) - 1
    links = columns.pairs.get(LINKS)
    split, unit = columns.split, "graphs"
    if split is None:
        split = torch.zeros(graphs, dtype=torch.int64)
    if NODE_SPLIT in columns.nodes:
        split, unit = columns.nodes[NODE_SPLIT], "nodes"
    elif links is not None and PAIR_SPLIT in links.columns:
        split, unit = links.columns[PAIR_SPLIT], "pairs"
    chosen = torch.linspace(0, graphs - 1, min(sample, graphs)).round().long().tolist()
    return Summary(
        source=columns.source,
        split_sizes=split.long().bincount(minlength=3).tolist()[: len(SPLITS)],
        split_unit=unit,
        nodes=columns.node_ptr.diff(),
        edges=columns.edge_ptr.diff(),
        degrees=global_edges(columns)[0].bincount(minlength=int(columns.node_ptr[-1])).bincount(),
        pairs=None if links is None else links.ptr.diff(),
        diameters=torch.tensor(
            [_diameter(columns, graph) for graph in track(chosen, "Diameters", len(chosen))],
            dtype=torch.int64,
        ),
        has_exact_diameters=bool((columns.node_ptr.diff()[chosen] <= EXACT_UP_TO).all()),
        **_labels(columns, names),
    )


def _labels(columns: GraphColumns, names: Sequence[str]) -> dict[str, Any]:
    """Count classes, or take the values of targets; count labels that are missing apart."""
    y = columns.nodes.get("y", columns.graphs.get("y"))
    found: dict[str, Any] = {"labels": {}, "answers": {}, "values": {}, "unlabelled": 0}
    if y is None:
        return found
    if not y.is_floating_point():
        known = y[y >= 0]
        counts = _named(known.bincount(minlength=len(names)).tolist(), names)
        answers, missing = dict.fromkeys(counts, known.numel()), y.numel() - known.numel()
        return found | {"labels": counts, "answers": answers, "unlabelled": missing}
    rows = y.reshape(len(y), -1)
    found["unlabelled"] = int(y.isnan().sum())
    if bool(((rows == 0) | (rows == 1) | rows.isnan()).all()):
        # of several labels at once: how often each of them is set
        counts = _named(rows.nansum(dim=0).long().tolist(), names)
        return found | {
            "labels": counts, "answers": _named((~rows.isnan()).sum(dim=0).tolist(), names),
        }  # fmt: skip
    return found | {"values": _named([column[~column.isnan()] for column in rows.T], names)}


def _named(values: Sequence[Item], names: Sequence[str]) -> dict[str, Item]:
    numbered = names or [str(place) for place in range(len(values))]
    if len(numbered) != len(values):
        raise UserError(
            f"names must be those of the {len(values)} classes or targets of the set, "
            f"got {len(numbered)}: {', '.join(numbered)}"
        )
    return dict(zip(numbered, values, strict=True))


def _diameter(columns: GraphColumns, graph: int) -> int:
    """Longest shortest path of a graph; of a large one a lower bound, which is exact for trees."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components, shortest_path

    size = int(columns.node_ptr[graph + 1] - columns.node_ptr[graph])
    begin, end = columns.edge_ptr[graph : graph + 2].tolist()
    source, target = columns.edge_index[:, begin:end].numpy()
    matrix = coo_matrix((np.ones(end - begin), (source, target)), shape=(size, size)).tocsr()
    find = partial(shortest_path, matrix, directed=False, unweighted=True)
    if size <= EXACT_UP_TO:
        distance = find()
        return int(distance[np.isfinite(distance)].max(initial=0))
    # two sweeps: what lies farthest from some node of the largest component ends a long path
    _, component = connected_components(matrix, directed=False)
    start = int((component == np.bincount(component).argmax()).argmax())
    farthest = int(np.nan_to_num(find(indices=start), posinf=-1).argmax())
    return int(np.nan_to_num(find(indices=farthest), posinf=-1).max())

"""Reader of PyG graphs (`from_graphs`)."""

from copy import copy
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.checks import check_is
from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import CustomData, LabelRule
from graphmamba.data.custom.npz import Arrays, assemble
from graphmamba.data.custom.split import MASKS
from graphmamba.data.from_pyg import Graphs, take_apart
from graphmamba.data.splits import split_of_words
from graphmamba.data.tables import LINKS, boundaries
from graphmamba.errors import UserError

ADJACENCY = ("adj_t", "adj")  # where some transforms of PyG put the edges
NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def from_graphs(
    graphs: Graphs,
    rule: LabelRule | None = None,
    level: Level | None = None,
    split_index: int = 0,
) -> CustomData:
    """Read `x`, `edge_index`, `edge_attr` and `y`, or `edge_label_index` and `edge_label`.

    `edge_weight` is a column of `edge_attr`. The split is read from `split` (`train`, `validation`
    or `test`) of each graph, or from the node masks `train_mask`, `val_mask` and `test_mask`.

    Args:
        graphs: The graphs, in a list, a `DataLoader` or a `Batch`, or one by itself; each has the
            same columns, and `y` a row for itself or for each node.
        rule: What labels are, where their values should not decide.
        level: What is labelled; None infers it from the shape of `y`.
        split_index: Which split, if masks hold several.
    """
    each, rule = list_of(graphs), rule or LabelRule()
    for place, graph in enumerate(each):
        points = graph.get("pos")
        if isinstance(points, Tensor) and points.shape[1:] == (3,):
            raise UserError(
                f"graph {place}: pos must be left out: layers that turn with a graph in 3-D are "
                "not supported; put distances into edge_attr, or coordinates into x"
            )
    columns = {name: _gather(each, name) for name in ("x", "edge_attr", "edge_label", *MASKS)}
    nodes = [int(graph.num_nodes or 0) for graph in each]
    y, rule, names = _labels(each, rule)
    if y and level is None and any(LINKS in graph for graph in each):
        raise UserError(f"graphs have both y and {LINKS}; level must say which is meant")
    if y and level is None:
        level = "graph" if all(len(values) == 1 for values in y) else "node"
    if y and level != "link":
        _check_rows("y", y, nodes if level == "node" else [1] * len(each), f" for level={level!r}")
    arrays: Arrays = {"node_ptr": boundaries(torch.tensor(nodes)), **_joined("y", y)}
    rows = dict.fromkeys(MASKS, nodes)
    index = _gather(each, "edge_index") or [NO_EDGES] * len(each)
    for name, ptr, of, parts in (
        ("edge_index", "edge_ptr", "edge_attr", index),
        (LINKS, "pair_ptr", "edge_label", _gather(each, LINKS)),
    ):
        if wrong := [values for values in parts if values.dim() != 2]:  # noqa: PLR2004
            raise UserError(f"{name} must have shape [2, pairs], got {list(wrong[0].shape)}")
        if parts:
            counts = [values.shape[1] for values in parts]
            arrays |= {ptr: boundaries(torch.tensor(counts)), **_joined(name, parts)}
            rows[of] = counts
    for name, parts in columns.items():
        _check_rows(name, parts, rows.get(name))
        arrays |= _joined(name, parts)
    words = [graph.get("split") for graph in each]
    if any(word is not None for word in words):
        arrays["split"] = split_of_words(list(map(str, words)), "graph {}".format)
    found = assemble(arrays, rule, level, "graphs", split_index)
    return replace(found, class_names=names) if names else found


def list_of(graphs: Graphs) -> list[Data]:
    """List graphs one by one; `edge_weight` becomes a column of `edge_attr`.

    Those without `edge_index` but with `adj_t` are rejected.
    """
    if isinstance(graphs, str | Path):
        raise UserError(
            f"graphs must be those of PyG or networkx, got the path '{graphs}': open_with_defaults "
            "of graphmamba.training.graphs opens files"
        )
    if not (found := list(take_apart(graphs))):
        raise UserError("graphs must hold a graph, got none")
    for place, graph in enumerate(found):
        check_is(f"graph {place}", graph, Data)
        if graph.edge_index is None and (others := [name for name in ADJACENCY if name in graph]):
            raise UserError(f"graph {place}: edges must be in edge_index, got {others[0]}")
    return [_with_weights(graph, place) for place, graph in enumerate(found)]


def _with_weights(graph: Data, place: int) -> Data:
    weight, edge_attr = graph.get("edge_weight"), graph.edge_attr
    if weight is None:
        return graph
    if not isinstance(weight, Tensor) or weight.numel() != graph.num_edges:
        raise UserError(
            f"graph {place}: edge_weight must be a number for each of {graph.num_edges} edges"
        )
    parts = [weight.reshape(-1, 1)]
    if isinstance(edge_attr, Tensor):
        parts.insert(0, edge_attr.reshape(len(edge_attr), -1))
    graph = copy(graph)
    del graph.edge_weight
    graph.edge_attr = torch.cat([part.float() for part in parts], dim=1)
    return graph


def _gather(graphs: list[Data], name: str) -> list[Tensor]:
    """A column of all graphs; empty where none has it."""
    found = [getattr(graph, name, None) for graph in graphs]
    if all(values is None for values in found):
        return []
    for place, values in enumerate(found):
        is_number = name == "y" and isinstance(values, Real | np.bool_)
        if not isinstance(values, Tensor) and not is_number:
            rule = "a tensor or a number" if name == "y" else "a tensor"
            others = " as in other graphs" if values is None else ""
            raise UserError(
                f"graph {place}: {name} must be {rule}{others}, got {type(values).__name__}"
            )
    return [torch.as_tensor(values).detach().cpu() for values in found]


def _labels(graphs: list[Data], rule: LabelRule) -> tuple[list[Tensor], LabelRule, tuple[str, ...]]:
    """Labels of each graph; words, one or a list with one for each node, number the classes."""
    given: list[Any] = [graph.get("y") for graph in graphs]
    rows = [[words] if isinstance(words, str) else words for words in given]
    if not all(isinstance(row, list) and all(isinstance(w, str) for w in row) for row in rows):
        parts = _gather(graphs, "y")
        return [values.reshape(1) if values.dim() == 0 else values for values in parts], rule, ()
    if rule.task not in (None, "classes"):
        raise UserError(f"y must hold numbers for task={rule.task!r}, got {rows[0][:1]}")
    names = rule.names or tuple(sorted({word for row in rows for word in row} - {""}))
    number = {name: place for place, name in enumerate(names)} | {"": -1}
    for place, row in enumerate(rows):
        if unknown := [word for word in row if word not in number]:
            listed = ", ".join(map(repr, names))
            raise UserError(f"graph {place}: y must be one of {listed}, got {unknown[0]!r}")
    counted = LabelRule(task="classes", classes=len(names))
    return [torch.tensor([number[word] for word in row]) for row in rows], counted, names


def _check_rows(name: str, parts: list[Tensor], wanted: list[int] | None, why: str = "") -> None:
    """Reject rows that would slip from one graph to the next."""
    if wanted is None:
        return
    for place, values in enumerate(parts):
        count = len(values) if values.dim() else -1
        if count != wanted[place]:
            is_vector = name == "y" and values.dim() == 1 and count > 1
            hint = f"; {count} labels of one graph have shape [1, {count}]" if is_vector else ""
            raise UserError(
                f"graph {place}: {name} must have {wanted[place]} rows{why}, "
                f"got shape {list(values.shape)}{hint}"
            )


def _joined(name: str, parts: list[Tensor]) -> Arrays:
    """Put the parts of a column end to end; the columns of an index are its rows."""
    if not parts:
        return {}
    rows = int(name.endswith("index"))
    shapes = [(*values.shape[:rows], *values.shape[rows + 1 :]) for values in parts]
    for place, (values, shape) in enumerate(zip(parts, shapes, strict=True)):
        if shape != shapes[0]:
            raise UserError(
                f"graph {place}: {name} must have the columns of graph 0, "
                f"{list(parts[0].shape)}, got {list(values.shape)}"
            )
    return {name: torch.cat(parts, dim=rows)}

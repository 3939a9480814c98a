"""Graphs of networkx, or of GraphML files -> graphs of PyG: attributes become features."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import CustomData, LabelRule
from graphmamba.data.custom.one_graph import MASKS
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.errors import UserError

Graphs: TypeAlias = Iterable[Any]
"""Graphs from Python: `Data` of PyG, batches of them, or graphs of networkx."""
WORDS = ("split", *MASKS)
"""Attributes that say which split a graph or node is in."""
MISSING = (None, "")


@dataclass(frozen=True)
class Converted:
    """Graphs as PyG has them, and what their columns are."""

    graphs: list[Data]
    features: tuple[str, ...]
    """Columns of nodes and edges in their order, such as `nodes/mass` and `nodes/element=C`."""
    classes: tuple[str, ...] | None = None
    """Names of the classes, where labels are words."""
    level: Level | None = None
    """What is labelled; None where nothing is."""


def networkx_graphs(graphs: Any) -> list[Any] | None:
    """List graphs of networkx, also a single one; None where they are others."""
    # who has such a graph has imported it
    nx = sys.modules.get("networkx")
    if nx is None:
        return None
    if isinstance(graphs, nx.Graph):
        return [graphs]
    is_list = isinstance(graphs, Sequence) and bool(graphs) and isinstance(graphs[0], nx.Graph)
    return list(graphs) if is_list else None


def from_networkx(
    graphs: Any,
    target: str | Sequence[str] = "y",
    rule: LabelRule | None = None,
    level: Level | None = None,
) -> CustomData:
    """Take over graphs with their attributes and labels; `convert` says how.

    Args:
        graphs: One graph, or several.
        target: The attribute that is predicted, or several of them; of the graphs or their nodes.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the attribute is not on one level alone.
    """
    target = (target,) if isinstance(target, str) else tuple(target)
    found = convert(graphs, target or ("y",), needs_target=True)
    rule = rule or LabelRule()
    if found.classes is not None and rule.classes is None and rule.task in (None, "classes"):
        rule = replace(rule, task="classes", classes=found.classes)
    made = from_graphs(found.graphs, rule, level or found.level)
    return replace(made, feature_names=found.features)


def convert(
    graphs: Any,
    target: Sequence[str] = (),
    known: Sequence[str] = (),
    *,
    needs_target: bool = False,
) -> Converted:
    """Turn attributes of nodes and edges into features.

    Numbers and lists of numbers stay as they are, words become a column of 0 and 1 for each. Edges
    of undirected graphs go both ways; those that are there several times stay so.

    Args:
        graphs: One graph, or several with the same attributes.
        target: Attributes that are no features; of graphs, or else of nodes, they are the labels.
        known: The features of the training; none takes those that are found.
        needs_target: Whether to reject graphs without the target.
    """
    import networkx as nx

    each = networkx_graphs(graphs) or list(graphs)
    for place, graph in enumerate(each):
        if not isinstance(graph, nx.Graph):
            raise UserError(f"graph {place}: must be one of networkx, got {type(graph).__name__}")
        if not len(graph):
            raise UserError(f"graph {place}: must have a node, got none")
    nodes = [[data for _, data in graph.nodes(data=True)] for graph in each]
    edges = [_edges(graph) for graph in each]
    x, node_names = _features("nodes", nodes, {*target, *WORDS}, known)
    attributes, edge_names = _features("edges", [rows for _, rows in edges], set(target), known)
    made = []
    for place, (graph, (index, _)) in enumerate(zip(each, edges, strict=True)):
        # a model needs some feature; without any, all nodes look alike
        data = Data(x=x[place] if node_names else torch.ones(len(graph), 1), edge_index=index)
        if edge_names:
            data.edge_attr = attributes[place]
        if "split" in graph.graph:
            data.split = graph.graph["split"]
        for name in MASKS:
            if name in nodes[place][0]:
                data[name] = torch.tensor([bool(row.get(name)) for row in nodes[place]])
        made.append(data)
    found = _labels(each, nodes, target) if target else None
    if found is None and needs_target:
        told = sorted({str(name) for graph in each for name in graph.graph} | set(nodes[0][0]))
        raise UserError(
            f"target must be an attribute of the graphs or of their nodes, got "
            f"{', '.join(target)}; there is {', '.join(map(str, told)) or 'none'}"
        )
    features = (*node_names, *edge_names)
    if found is None:
        return Converted(made, features)
    level, labels, names = found
    for data, y in zip(made, labels, strict=True):
        data.y = y
    return Converted(made, features, names, level)


def read_graphml(path: Path) -> tuple[list[Any], list[str]]:
    """Read all graphs of a file, or of the files of a folder, with their names."""
    from xml.etree.ElementTree import ParseError

    import networkx as nx
    from networkx.readwrite.graphml import GraphMLReader

    graphs: list[Any] = []
    names: list[str] = []
    for file in graphml_files(path):
        try:
            found = list(GraphMLReader()(path=file))
        except (OSError, ParseError, nx.NetworkXError, KeyError, ValueError, TypeError) as error:
            raise UserError(f"{file} must be GraphML that can be read: {error}") from error
        for graph in found:
            for _, _, data in graph.edges(data=True):
                # the name of an edge is none of its features
                data.pop("id", None)
        graphs += found
        alone = [file.stem] if len(found) == 1 else [f"{file.stem}.{n}" for n in range(len(found))]
        names += alone
    if not graphs:
        raise UserError(f"{path} must hold a graph of GraphML, got none")
    return graphs, names


def graphml_files(path: Path) -> list[Path]:
    """List the files, in the order of the numbers in their names."""
    if path.is_file():
        return [path]
    parts = re.compile(r"(\d+)")
    return sorted(
        path.glob("*.graphml"),
        key=lambda file: [
            (int(part), "") if part.isdigit() else (-1, part) for part in parts.split(file.stem)
        ],
    )


def _edges(graph: Any) -> tuple[Tensor, list[Mapping[Any, Any]]]:
    """Both nodes of each directed edge, by their places, and its attributes."""
    place = {node: number for number, node in enumerate(graph)}
    pairs, rows = [], []
    for source, target, data in graph.edges(data=True):
        pairs.append((place[source], place[target]))
        rows.append(data)
        if not graph.is_directed() and source != target:
            pairs.append((place[target], place[source]))
            rows.append(data)
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous(), rows


def _features(
    table: str, rows: list[list[Mapping[Any, Any]]], left_out: set[str], known: Sequence[str]
) -> tuple[list[Tensor], list[str]]:
    """Columns of all attributes but some, graph by graph, and what they are called."""
    names = list(dict.fromkeys(name for graph in rows for row in graph for name in row))
    names = [name for name in names if str(name) not in left_out]
    wanted = [name for name in known if name.startswith(f"{table}/")]
    if known:
        # what the model does not know is not read
        stems = tuple(f"{table}/{name}" for name in names)
        names = [
            name
            for name, stem in zip(names, stems, strict=True)
            if any(each == stem or each.startswith((f"{stem}=", f"{stem}.")) for each in wanted)
        ]
    found: list[np.ndarray] = []
    titles: list[str] = []
    for name in names:
        cells = [row.get(name) for graph in rows for row in graph]
        columns, ends = _encoded(f"{table}/{name}", cells, rows, known)
        found.append(columns)
        titles += ends
    count = sum(map(len, rows))
    joined = np.concatenate(found, axis=1) if found else np.empty((count, 0))
    if known and not count:
        joined, titles = np.empty((0, len(wanted))), wanted
    elif known:
        if missing := [name for name in wanted if name not in titles]:
            raise UserError(
                f"graphs must have the attributes that the model was trained on, "
                f"{', '.join(wanted)}; got no {missing[0]}"
            )
        joined, titles = joined[:, [titles.index(name) for name in wanted]], wanted
    values = torch.from_numpy(joined.astype(np.float32))
    return list(values.split([len(graph) for graph in rows])), titles


def _encoded(
    title: str, cells: list[Any], rows: list[list[Mapping[Any, Any]]], known: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """Turn an attribute into columns of numbers."""

    def where(row: int) -> str:
        ends = np.cumsum([len(graph) for graph in rows])
        graph = int(np.searchsorted(ends, row, side="right"))
        return f"graph {graph}: {title}"

    gaps = [row for row, cell in enumerate(cells) if cell is None]
    if gaps:
        raise UserError(
            f"{where(gaps[0])} must be there as in other rows: every node and every edge has the "
            "same attributes"
        )
    if all(isinstance(cell, str) for cell in cells):
        stem = f"{title}="
        stated = [name.removeprefix(stem) for name in known if name.startswith(stem)]
        kinds = stated if known else sorted(set(cells))
        if strange := [row for row, cell in enumerate(cells) if cell not in kinds]:
            raise UserError(
                f"{where(strange[0])} must be one of {', '.join(kinds) or 'none'}, as in training, "
                f"got {cells[strange[0]]!r}"
            )
        place = {kind: number for number, kind in enumerate(kinds)}
        return np.eye(len(kinds))[[place[cell] for cell in cells]], [f"{stem}{k}" for k in kinds]
    try:
        values = np.array([np.asarray(cell, dtype=np.float64) for cell in cells])
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{where(0)} must be numbers, lists of the same length, or words alone: {error}"
        ) from error
    is_list = values.ndim > 1
    values = values.reshape(len(cells), -1)
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).any(axis=1).argmax())
        raise UserError(f"{where(row)} must be a finite number, got {cells[row]!r}")
    return values, [f"{title}.{n}" for n in range(values.shape[1])] if is_list else [title]


def _labels(
    graphs: Sequence[Any],
    nodes: list[list[Mapping[Any, Any]]],
    target: Sequence[str],
) -> tuple[Level, list[Tensor], tuple[str, ...] | None] | None:
    """Labels of the graphs, or else of their nodes; None where there are none."""
    level: Level = "graph"
    if any(name in graph.graph for graph in graphs for name in target):
        rows = [[graph.graph] for graph in graphs]
    elif any(name in row for graph in nodes for row in graph for name in target):
        level, rows = "node", nodes
    else:
        return None
    cells = [[row.get(name) for name in target] for graph in rows for row in graph]
    flat = [cell for row in cells for cell in row if cell not in MISSING]
    names = None
    if any(isinstance(cell, str) for cell in flat):
        if len(target) > 1 or not all(isinstance(cell, str) for cell in flat):
            raise UserError(f"{', '.join(target)} must be all numbers, or one column of words")
        names = tuple(sorted(set(flat)))
        number = {name: place for place, name in enumerate(names)}
        y = torch.tensor([-1 if row[0] in MISSING else number[row[0]] for row in cells])
    else:
        if wrong := [cell for cell in flat if not isinstance(cell, Real)]:
            raise UserError(f"{', '.join(target)} must be numbers or words, got {wrong[0]!r}")
        is_whole = all(isinstance(cell, int | np.integer) for cell in flat)
        gap = -1 if is_whole else float("nan")
        y = torch.tensor([[gap if cell in MISSING else cell for cell in row] for row in cells])
        y = y[:, 0] if len(target) == 1 else y
    return level, list(y.split([len(graph) for graph in rows])), names


def attribute_of(graph: Any, name: str) -> str:
    """A value of a graph as a table would have it, of networkx or PyG; nothing where it is not."""
    value = graph.get(name) if isinstance(graph, Data) else graph.graph.get(name)
    value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    return "" if value is None else str(value)


def names_of_nodes(graphs: Iterable[Any]) -> tuple[str, ...]:
    """What the nodes of all graphs are called."""
    return tuple(str(node) for graph in graphs for node in graph)

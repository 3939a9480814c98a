"""Reader of networkx graphs and GraphML files: attributes become features."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import Level
from graphmamba.data.custom.csv import TARGET
from graphmamba.data.custom.labels import CustomData, CustomGraphs, LabelRule, numbers_of
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.custom.split import MASKS
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.splits import split_of_words
from graphmamba.data.tables import NO_SPLIT
from graphmamba.errors import UserError

Graphs: TypeAlias = Iterable[Any]  # graphs from Python: PyG `Data`, batches, or networkx graphs
WORDS = ("split", *MASKS)  # attributes that say which split a graph or node is in
MISSING = (None, "")
OF_GRAPHML = {"edge_default", "node_default"}  # attributes that reading GraphML adds
Rows = list[list[Mapping[Any, Any]]]  # attributes of each node or edge of each graph


@dataclass(frozen=True)
class Converted:
    """PyG graphs, with the names of their features."""

    graphs: list[Data]
    features: tuple[str, ...]
    """Names of node and edge features, such as `nodes/mass` and `nodes/element=C`."""
    level: Level | None = None  # what is labelled; None for nothing


def networkx_graphs(graphs: Any) -> list[Any] | None:
    """List networkx graphs, also a single one; None for other types."""
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
    """Read graphs with their attributes and labels; see `convert`.

    Args:
        graphs: One graph, or several.
        target: Target attribute or attributes, of graphs or nodes.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the attribute is not on one level alone.
    """
    each = networkx_graphs(graphs) or list(graphs)
    target = ((target,) if isinstance(target, str) else tuple(target)) or ("y",)
    found = convert(each, target)
    if found.level is None and level != "link":
        there = {*each[0].graph, *next(iter(each[0].nodes.values()))} - OF_GRAPHML
        raise UserError(
            f"{TARGET} must be an attribute of the "
            f"graphs or of their nodes, got {', '.join(target)}; there is "
            f"{', '.join(sorted(map(str, there))) or 'none'}"
        )
    if (level or found.level) == "node":
        _take_node_split(found.graphs, each)
    made = from_graphs(found.graphs, rule, level or found.level)
    return replace(made, feature_names=found.features)


def convert(graphs: Any, target: Sequence[str] = (), known: Sequence[str] = ()) -> Converted:
    """Turn attributes of nodes and edges into features.

    Numbers and lists of numbers stay as they are, words are one-hot encoded. Edges of undirected
    graphs go both ways; repeated edges stay. `target` are labels, of graphs or else of nodes, and
    `known` the features of the training; empty for all that are found.
    """
    import networkx as nx

    each = networkx_graphs(graphs) or list(graphs)
    for place, graph in enumerate(each):
        if not isinstance(graph, nx.Graph):
            raise UserError(f"graph {place}: must be one of networkx, got {type(graph).__name__}")
        if not len(graph):
            raise UserError(f"graph {place}: must have a node, got none")
    nodes: Rows = [[data for _, data in graph.nodes(data=True)] for graph in each]
    edges = [_edges(graph) for graph in each]
    x, node_names = _features("nodes", nodes, {*target, *WORDS}, known)
    attributes, edge_names = _features("edges", [rows for _, rows in edges], {*target}, known)
    made = []
    for place, (graph, (index, _)) in enumerate(zip(each, edges, strict=True)):
        # a model needs some feature; without any, all nodes look alike
        data = Data(x=x[place] if node_names else torch.ones(len(graph), 1), edge_index=index)
        if edge_names:
            data.edge_attr = attributes[place]
        if "split" in graph.graph:
            data.split = graph.graph["split"]
        for name in MASKS:
            if any(name in row for row in nodes[place]):
                data[name] = torch.tensor([bool(row.get(name)) for row in nodes[place]])
        made.append(data)
    found = Converted(made, (*node_names, *edge_names))
    if any(name in graph.graph for graph in each for name in target):
        return _with_labels(found, "graph", [[graph.graph] for graph in each], target)
    if any(name in row for graph in nodes for row in graph for name in target):
        return _with_labels(found, "node", nodes, target)
    return found


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
        alone = len(found) == 1
        names += [file.stem if alone else f"{file.stem}.{number}" for number in range(len(found))]
    if not graphs:
        raise UserError(f"{path} must hold a graph of GraphML, got none")
    return graphs, names


def read_graphml_unlabelled(
    path: Path, label: Sequence[str], known: tuple[str, ...]
) -> CustomGraphs:
    """Read graphs to predict, with the features of the training; labels may be missing."""
    graphs, names = read_graphml(path)
    made = convert(graphs, label or ("y",), known)
    columns = columns_of(made.graphs, exclude={"y", *WORDS})
    return CustomGraphs(
        columns=columns,
        features=numbers_of(columns),
        feature_names=made.features,
        graph_names=tuple(names),
        node_names=tuple(str(node) for graph in graphs for node in graph),
    )


def graphml_files(path: Path) -> list[Path]:
    """List the files, in the order of the numbers in their names."""
    if path.is_file():
        return [path]

    def numbers_first(file: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", file.stem)
        return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

    return sorted(path.glob("*.graphml"), key=numbers_first)


def _edges(graph: Any) -> tuple[Tensor, list[Mapping[Any, Any]]]:
    """Both nodes of each directed edge, by their places, and its attributes."""
    place = {node: number for number, node in enumerate(graph)}
    pairs, rows = [], []
    for source, target, data in graph.edges(data=True):
        both = [(place[source], place[target]), (place[target], place[source])]
        ways = both[:1] if graph.is_directed() or source == target else both
        pairs += ways
        rows += [data] * len(ways)
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous(), rows


def _features(
    table: str, rows: Rows, left_out: set[str], known: Sequence[str]
) -> tuple[list[Tensor], list[str]]:
    """Columns of all attributes but some, graph by graph, and what they are called."""
    wanted = [name for name in known if name.startswith(f"{table}/")]
    stems = {name.split("=")[0] for name in wanted} | {name.rpartition(".")[0] for name in wanted}
    found: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for graph in rows for row in graph for name in row):
        title = f"{table}/{name}"
        # what the model does not know is not read
        if str(name) not in left_out and (not known or title in stems):
            cells = [row.get(name) for graph in rows for row in graph]
            found |= _encoded(title, cells, wanted if known else None)
    count = sum(map(len, rows))
    if known and count:
        if missing := [name for name in wanted if name not in found]:
            raise UserError(
                f"graphs must have the attributes that the model was trained on, "
                f"{', '.join(wanted)}; got no {missing[0]}"
            )
        found = {name: found[name] for name in wanted}
    titles = wanted if known else [*found]
    joined = np.stack([*found.values()], axis=1) if found else np.empty((count, len(titles)))
    values = torch.from_numpy(joined.astype(np.float32))
    return list(values.split([len(graph) for graph in rows])), titles


def _encoded(title: str, cells: list[Any], known: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Turn an attribute of all nodes or edges into columns of numbers."""
    if all(isinstance(cell, str) for cell in cells):
        stem, kinds = f"{title}=", sorted(set(cells))
        if known is not None:
            stated = [name.removeprefix(stem) for name in known if name.startswith(stem)]
            if strange := [kind for kind in kinds if kind not in stated]:
                raise UserError(
                    f"{title} must be one of {', '.join(stated) or 'none'}, as in training, "
                    f"got {strange[0]!r}"
                )
            kinds = stated
        return {f"{stem}{kind}": np.array([cell == kind for cell in cells]) for kind in kinds}
    try:
        values = np.array([np.asarray(cell, dtype=np.float64) for cell in cells])
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{title} must be words alone, or numbers or lists of the same length, for every node "
            f"or edge: {error}"
        ) from error
    names = [title] if values.ndim == 1 else [f"{title}.{n}" for n in range(values[0].size)]
    values = values.reshape(len(cells), -1)
    if (is_wrong := ~np.isfinite(values).all(axis=1)).any():
        got = cells[int(is_wrong.argmax())]
        raise UserError(f"{title} must be a finite number for every node or edge, got {got!r}")
    return dict(zip(names, values.T, strict=True))


def _take_node_split(graphs: list[Data], each: list[Any]) -> None:
    """Turn the attribute `split` of nodes into masks."""
    for place, (data, graph) in enumerate(zip(graphs, each, strict=True)):
        words = dict(graph.nodes(data="split"))
        if any(words.values()):
            cells = ["" if word is None else str(word) for word in words.values()]
            where = [f"graph {place}, node {node}" for node in words]
            split = split_of_words(cells, where.__getitem__, empty=NO_SPLIT)
            for number, name in enumerate(MASKS):
                data[name] = split == number


def _with_labels(found: Converted, level: Level, rows: Rows, target: Sequence[str]) -> Converted:
    """Put the labels of the graphs, or of their nodes, beside their features."""
    given = [[row.get(name) for name in target] for graph in rows for row in graph]
    cells = [[c.item() if isinstance(c, np.generic) else c for c in row] for row in given]
    flat = [cell for row in cells for cell in row if cell not in MISSING]
    sizes = [len(graph) for graph in rows]
    parts: Sequence[Any]
    if any(isinstance(cell, str) for cell in flat):
        if len(target) > 1 or not all(isinstance(cell, str) for cell in flat):
            raise UserError(f"{', '.join(target)} must be all numbers, or one column of words")
        words = iter([row[0] or "" for row in cells])
        parts = [list(islice(words, size)) for size in sizes]
    else:
        if wrong := [cell for cell in flat if not isinstance(cell, Real)]:
            raise UserError(f"{', '.join(target)} must be numbers or words, got {wrong[0]!r}")
        gap = -1 if all(isinstance(cell, Integral) for cell in flat) else float("nan")
        y = torch.tensor([[gap if cell in MISSING else cell for cell in row] for row in cells])
        parts = (y[:, 0] if len(target) == 1 else y).split(sizes)
    for data, labels in zip(found.graphs, parts, strict=True):
        data.y = labels
    return replace(found, level=level)


def attribute_of(graph: Any, name: str) -> str:
    """A value of a graph as a table would have it, of networkx or PyG; nothing where it is not."""
    value = graph.get(name) if isinstance(graph, Data) else graph.graph.get(name)
    value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    return "" if value is None else str(value)

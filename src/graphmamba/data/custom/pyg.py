"""Any graphs of PyG -> columns and a task."""

from numbers import Real

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.checks import check_is
from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import CustomData, LabelRule
from graphmamba.data.custom.npz import Arrays, assemble
from graphmamba.data.custom.one_graph import MASKS
from graphmamba.data.from_pyg import Graphs, take_apart
from graphmamba.data.splits import SPLITS
from graphmamba.data.tables import LINKS, boundaries
from graphmamba.errors import UserError

SOURCE = "graphs"
ADJACENCY = ("adj_t", "adj")
"""Where some transforms of PyG put the edges."""
SPACE = 3
"""Coordinates of a point in space."""
NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def from_graphs(
    graphs: Graphs,
    rule: LabelRule | None = None,
    level: Level | None = None,
    split_index: int = 0,
) -> CustomData:
    """Take over `x`, `edge_index`, `edge_attr` and `y`, or `edge_label_index` and `edge_label`.

    Where graphs say in `split` which split they are in, as a word of CSV files, that counts; so do
    `train_mask`, `val_mask` and `test_mask`, which split their nodes.

    Args:
        graphs: The graphs, in a list, a `DataLoader` or a `Batch`, or one by itself; each has the
            same columns, and `y` a row for itself or for each node.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the shape of `y` should not decide.
        split_index: Which split, where masks hold several.
    """
    graphs = list_of(graphs)
    _check_flat(graphs)
    columns = {name: _gather(graphs, name) for name in ("x", "edge_attr", "edge_label", LINKS)}
    columns["edge_index"] = _gather(graphs, "edge_index") or [NO_EDGES] * len(graphs)
    if (words := _class_words(graphs)) is not None:
        columns["y"], rule = _numbered(words, rule or LabelRule())
    else:
        columns["y"] = _gather(graphs, "y")
    if level is None and columns["y"] and columns[LINKS]:
        raise UserError(f"graphs have both y and {LINKS}; level must say which is meant")
    nodes = torch.tensor([_nodes(graph) for graph in graphs])
    arrays: Arrays = {"node_ptr": boundaries(nodes)}
    for name, key, of in (
        ("edge_index", "edge_ptr", "edge_attr"),
        (LINKS, "pair_ptr", "edge_label"),
    ):
        if columns[name]:
            counts = [_width(name, index) for index in columns[name]]
            _check_rows(of, columns[of], counts)
            arrays[key] = boundaries(torch.tensor(counts))
    if columns["y"]:
        columns["y"], level = _labels(graphs, columns["y"], level)
    for name, parts in columns.items():
        if parts:
            arrays[name] = _joined(name, parts)
    for name in MASKS:
        if parts := _gather(graphs, name):
            _check_rows(name, parts, nodes.tolist())
            arrays[name] = _joined(name, parts)
    if (split := _split(graphs)) is not None:
        arrays["split"] = split
    return assemble(arrays, rule or LabelRule(), level, SOURCE, split_index)


def list_of(graphs: Graphs) -> list[Data]:
    """List graphs one by one; those with edges where nobody looks for them are rejected."""
    if not (found := list(take_apart(graphs))):
        raise UserError("graphs must hold a graph, got none")
    for place, graph in enumerate(found):
        check_is(f"graph {place}", graph, Data)
        if graph.edge_index is None and (others := [name for name in ADJACENCY if name in graph]):
            raise UserError(f"graph {place}: edges must be in edge_index, got {others[0]}")
    return found


def _check_flat(graphs: list[Data]) -> None:
    """Reject positions in space: no layer turns with them, and passed over they would be missed."""
    for place, graph in enumerate(graphs):
        points = graph.get("pos")
        if isinstance(points, Tensor) and points.dim() == 2 and points.shape[1] == SPACE:  # noqa: PLR2004
            raise UserError(
                f"graph {place}: pos must be left out: layers that turn with a graph in 3-D are "
                "not supported; put distances into edge_attr, or coordinates into x"
            )


def _check_rows(name: str, parts: list[Tensor], counts: list[int]) -> None:
    """Reject rows that would slip from one graph to the next."""
    for place, (values, count) in enumerate(zip(parts, counts, strict=bool(parts))):
        if values.dim() == 0 or len(values) != count:
            raise UserError(
                f"graph {place}: {name} must have {count} rows, got shape {list(values.shape)}"
            )


def _gather(graphs: list[Data], name: str) -> list[Tensor]:
    """A column of all graphs; empty where none has it."""
    found = [getattr(graph, name, None) for graph in graphs]
    if all(values is None for values in found):
        return []
    is_label = name == "y"
    for place, values in enumerate(found):
        if not isinstance(values, Tensor) and not (is_label and isinstance(values, Real)):
            rule = "a tensor or a number" if is_label else "a tensor"
            others = " as in other graphs" if values is None else ""
            raise UserError(
                f"graph {place}: {name} must be {rule}{others}, got {type(values).__name__}"
            )
    return [torch.as_tensor(values).detach().cpu() for values in found]


def _class_words(graphs: list[Data]) -> list[list[str]] | None:
    """Classes that are words: one for each graph, or a list with one for each node."""
    found = [graph.get("y") for graph in graphs]
    rows = [[words] if isinstance(words, str) else words for words in found]
    is_words = all(
        isinstance(row, list) and row and all(isinstance(word, str) for word in row) for row in rows
    )
    # numbers in quotes are rejected as any text that stands where numbers are expected
    has_names = is_words and any(
        word and not word.lstrip("-").isdecimal() for row in rows for word in row
    )
    return rows if has_names else None


def _numbered(words: list[list[str]], rule: LabelRule) -> tuple[list[Tensor], LabelRule]:
    """Number classes in the order of their names; an empty word is no label."""
    names = rule.classes
    if not isinstance(names, tuple):
        names = tuple(sorted({word for row in words for word in row} - {""}))
    number = {name: place for place, name in enumerate(names)} | {"": -1}
    for place, row in enumerate(words):
        if unknown := [word for word in row if word not in number]:
            listed = ", ".join(map(repr, names))
            raise UserError(f"graph {place}: y must be one of {listed}, got {unknown[0]!r}")
    rule = LabelRule(task="classes", classes=names)
    return [torch.tensor([number[word] for word in row]) for row in words], rule


def _labels(
    graphs: list[Data], labels: list[Tensor], level: Level | None
) -> tuple[list[Tensor], Level]:
    """One row for each graph or node; a number by itself is one row."""
    rows = [values.reshape(1) if values.dim() == 0 else values for values in labels]
    if level is None:
        is_graph = all(len(values) == 1 for values in rows)
        level = "graph" if is_graph else "node"
    for place, (graph, values) in enumerate(zip(graphs, rows, strict=True)):
        wanted = 1 if level == "graph" else _nodes(graph)
        if level != "link" and len(values) != wanted:
            is_vector = values.dim() == 1 and len(values) > 1
            hint = f"; {len(values)} labels of one graph have shape [1, {len(values)}]"
            raise UserError(
                f"graph {place}: y must have {wanted} rows for level={level!r}, "
                f"got shape {list(values.shape)}{hint if is_vector else ''}"
            )
    return rows, level


def _split(graphs: list[Data]) -> Tensor | None:
    """Split of each graph by its word; None where none has one."""
    words = [graph.get("split") for graph in graphs]
    if all(word is None for word in words):
        return None
    found = [SPLITS.get(word, -1) if isinstance(word, str) else -1 for word in words]
    if -1 in found:
        place = found.index(-1)
        raise UserError(
            f"graph {place}: split must be one of {', '.join(SPLITS)} in all graphs or left out of "
            f"all, got {words[place]!r}"
        )
    return torch.tensor(found)


def _joined(name: str, parts: list[Tensor]) -> Tensor:
    is_index = name.endswith("index")
    # the columns of an index are its rows
    shapes = [
        (values.dim(), *(values.shape[:1] if is_index else values.shape[1:])) for values in parts
    ]
    for place, (values, shape) in enumerate(zip(parts, shapes, strict=True)):
        if shape != shapes[0]:
            raise UserError(
                f"graph {place}: {name} must have the columns of graph 0, "
                f"{list(parts[0].shape)}, got {list(values.shape)}"
            )
    return torch.cat(parts, dim=1 if is_index else 0)


def _width(name: str, index: Tensor) -> int:
    if index.dim() != 2:  # noqa: PLR2004
        raise UserError(f"{name} must have shape [2, pairs], got {list(index.shape)}")
    return index.shape[1]


def _nodes(graph: Data) -> int:
    return int(graph.num_nodes or 0)

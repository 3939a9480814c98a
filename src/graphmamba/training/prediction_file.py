"""Predictions -> a CSV file, written as they come and renamed when it is whole."""

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from graphmamba.training.predictions import Predictions
from graphmamba.whole_files import write_whole

Namer = Callable[[int, int], str]
"""Name of a node, by the numbers of its graph and of itself."""


def write_predictions(
    path: Path,
    parts: Iterable[Predictions],
    graph_name: Callable[[int], str] = str,
    node_name: Namer = lambda _graph, node: str(node),
) -> int:
    """Write one line for each row; returns how many there are.

    Args:
        path: The file.
        parts: Predictions, batch after batch; only one is held at a time.
        graph_name: What a graph is called, by its number.
        node_name: What a node is called.
    """
    rows = 0

    def write(partial: Path) -> None:
        nonlocal rows
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            for number, part in enumerate(parts):
                # the first part may have no rows: graphs without pairs
                if not number:
                    writer.writerow(header_of(part))
                writer.writerows(_lines(part, graph_name, node_name))
                rows += len(part)

    write_whole(path, write)
    return rows


def header_of(part: Predictions) -> list[str]:
    """Names of the columns of the file."""
    place = ["node"] if part.node is not None else []
    place = ["source", "target"] if part.pair is not None else place
    has_spread = part.spread is not None
    if part.kind == "classes":
        values = ["class", *(f"p_{name}" for name in part.names)]
        return ["graph", *place, *values, *(["spread"] if has_spread else [])]
    prefix = "p_" if part.kind == "multi-label" else ""
    values = [f"{prefix}{name}" for name in part.names]
    if not has_spread:
        return ["graph", *place, *values]
    alone = len(part.names) == 1
    return ["graph", *place, *values, *("spread" if alone else f"spread_{n}" for n in part.names)]


def _lines(
    part: Predictions, graph_name: Callable[[int], str], node_name: Namer
) -> Iterator[list[str]]:
    values = part.values.tolist()
    spreads = None if part.spread is None else part.spread.tolist()
    nodes = _nodes_of(part)
    is_classes = part.kind == "classes"
    classes, labels = (part.classes.tolist(), part.labels) if is_classes else ([], [])
    for row, graph in enumerate(part.graph.tolist()):
        line = [graph_name(graph), *(node_name(graph, node) for node in nodes[row])]
        spread = [] if spreads is None else spreads[row]
        if is_classes:
            line.append(labels[row])
            # of all classes, the doubt about the one that is named; where none is, all are alike
            best = max(classes[row], 0)
            spread = spread[best : best + 1]
        yield [*line, *(f"{value:.6g}" for value in [*values[row], *spread])]


def _nodes_of(part: Predictions) -> list[list[int]]:
    if part.pair is not None:
        return part.pair.tolist()
    if part.node is not None:
        return part.node[:, None].tolist()
    return [[]] * len(part)

"""What is refused as a benchmark: graphs whose columns or labels are not those of the catalogue."""

from collections.abc import Iterator, Mapping
from itertools import chain

import torch
from torch import Tensor

from graphmamba.data.catalog import Benchmark, Level, Task
from graphmamba.data.tables import LINKS, GraphColumns
from graphmamba.errors import UserError


def check_benchmark(
    columns: GraphColumns, benchmark: Benchmark, origin: str, *, has_features: bool = True
) -> None:
    """Refuse the graphs of another set before they are kept under a name that is not theirs.

    Args:
        columns: What was read, downloaded or drawn.
        benchmark: What it has to be.
        origin: What messages call the place that it came from.
        has_features: Whether nodes come with features; those of call graphs are computed later.
    """
    labels = _labels(columns, benchmark.task)
    broken = next(chain(_features(columns, benchmark, has_features), labels), None)
    if broken is not None:
        rule, got = broken
        read = f" ({columns.source})" if columns.source else ""
        raise UserError(f"{origin} must hold graphs of {benchmark.title}: {rule}, got {got}{read}")


def _features(
    columns: GraphColumns, benchmark: Benchmark, has_features: bool
) -> Iterator[tuple[str, str]]:
    """Rules that do not hold for the features, each with what is there instead."""
    features = benchmark.features
    node_columns = features.node_columns if has_features else 0
    for name, among, needed, is_integer in (
        ("x", columns.nodes, node_columns, features.nodes == "atoms"),
        ("edge_attr", columns.edges, features.edge_columns, features.edges == "bonds"),
    ):
        values = among.get(name)
        if not needed:
            if values is not None:
                yield f"{name} must not be there", _shape(values)
        elif (
            values is None
            or values.shape[1:] != (needed,)
            or values.is_floating_point() == is_integer
        ):
            kind = "integers" if is_integer else "floating-point numbers"
            yield f"{name} must have {needed} columns of {kind}", _shape(values)


def _labels(columns: GraphColumns, task: Task) -> Iterator[tuple[str, str]]:
    """Rules that do not hold for the labels, each with what is there instead."""
    if task.level == "link":
        if LINKS not in columns.pairs:
            yield f"{LINKS} must be there", "none"
        return
    among: dict[Level, Mapping[str, Tensor]] = {"graph": columns.graphs, "node": columns.nodes}
    if "y" not in among[task.level]:
        others = [f"y of each {level}" for level, table in among.items() if "y" in table]
        yield f"y must be of each {task.level}", " and ".join(others) or "none"
    else:
        yield from _values(among[task.level]["y"], task)


def _values(y: Tensor, task: Task) -> Iterator[tuple[str, str]]:
    if not task.classes:
        if y.shape[1:] != (task.outputs,) or not y.is_floating_point():
            yield f"y must have {task.outputs} columns of floating-point numbers", _shape(y)
    elif y.dim() != 1 or y.is_floating_point():
        yield "y must hold a class each, an integer", _shape(y)
    elif len(y):
        low, high = (int(end) for end in torch.aminmax(y))
        if low < 0 or high >= task.classes:
            yield f"y must be 0 to {task.classes - 1}", f"{low if low < 0 else high}"


def _shape(values: Tensor | None) -> str:
    return "none" if values is None else f"{values.dtype} of shape {list(values.shape)}"

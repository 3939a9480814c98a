"""The text files of a TUDataset, in a folder or a zip -> columns and a task.

https://chrsmrrs.github.io/datasets/docs/format/ describes them: `DS_A.txt` has the edges of all
graphs, `DS_graph_indicator.txt` the graph of each node, both counted from 1.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import (
    LARGEST,
    CustomData,
    LabelRule,
    Where,
    numbers_of,
    read_labels,
    task_of,
)
from graphmamba.data.custom.npz import check_unpacked
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

EDGES = "_A.txt"
"""How the name of the file ends that each such set has."""
INDICATOR = "graph_indicator"
TARGETS: dict[str, Level] = {
    "graph_labels": "graph",
    "graph_attributes": "graph",
    "node_labels": "node",
    "node_attributes": "node",
}
"""Files that may hold what is predicted, the first one that is there by default."""
OPTIONAL = ("edge_labels", "edge_attributes", *TARGETS)
Values = Float[np.ndarray, "rows columns"]


def read_tu(
    path: Path | str,
    target: str | Sequence[str] = (),
    rule: LabelRule | None = None,
    level: Level | None = None,
) -> CustomData:
    """Read graphs with their labels. Labels of nodes and edges become one column for each value.

    Args:
        path: A folder or a zip with the files of one set.
        target: What is predicted: `graph_labels`, `graph_attributes`, `node_labels` or
            `node_attributes`; left out, the first of them that describes graphs.
        rule: What labels are, where their values should not decide.
        level: What is labelled; the target decides.
    """
    files = _Files.of(Path(path))
    target = files.target(target)
    if level not in (None, TARGETS[target]):
        raise UserError(f"level must be {TARGETS[target]!r} for target={target!r}, got {level!r}")
    columns, order, _ = _columns(files, target, ())
    rule, values = rule or LabelRule(), files.read(target)
    names = [target] if values.shape[1] == 1 else [f"{target}.{n}" for n in range(values.shape[1])]
    # as a table has them: whole ones without decimals, and nothing where there is none
    cells = [
        ["" if isnan(value) else str(int(value)) if value.is_integer() else repr(value)
         for value in column.tolist()] for column in values.T
    ]  # fmt: skip
    if rule == LabelRule() and target.endswith("attributes"):
        rule = LabelRule(task="regression")
    elif rule == LabelRule() and len(cells) == 1:
        # labels are classes by their value, whichever numbers they have
        found = sorted(set(cells[0]) - {""}, key=float)
        rule = LabelRule(task="classes", classes=tuple(found) if len(found) > 1 else None)
    labels = read_labels(dict(zip(names, cells, strict=True)), rule, files.where(target))
    is_graph = TARGETS[target] == "graph"
    _check_rows(files, target, len(values), len(columns.node_ptr) - 1 if is_graph else len(order))
    if is_graph:
        columns.graphs["y"] = labels.values
    else:
        columns.nodes["y"] = labels.values[order]
    return CustomData(columns, numbers_of(columns), task_of(TARGETS[target], labels), labels.names)


def read_tu_unlabelled(
    path: Path, target: Sequence[str], known: tuple[str, ...]
) -> tuple[GraphColumns, tuple[str, ...], tuple[str, ...]]:
    """Read graphs to predict, with the numbers that their files give to graphs and nodes."""
    columns, order, _ = _columns(_Files.of(path), target[0] if target else "", known)
    graphs = tuple(str(1 + number) for number in range(len(columns.node_ptr) - 1))
    return columns, graphs, tuple(str(1 + node) for node in order.tolist())


def tu_features(path: Path, target: Sequence[str]) -> tuple[str, ...]:
    """Name the feature columns: those of attributes, then one for each value of a label."""
    return _columns(_Files.of(path), target[0] if target else "", ())[2]


def tu_files(path: Path) -> list[Path]:
    """List the files whose contents count."""
    return [path] if path.is_file() else sorted(_Files.of(path).names.values())


@dataclass(frozen=True)
class _Files:
    """The files of one set."""

    path: Path
    names: dict[str, Path]
    """Where each part is, such as `graph_labels`; in a zip, the name of the member."""

    @classmethod
    def of(cls, path: Path) -> "_Files":
        """Find the files of the one set that a folder or zip holds."""
        if path.is_dir():
            found = sorted(path.glob("*.txt"))
        else:
            try:
                with zipfile.ZipFile(path) as archive:
                    check_unpacked(path, archive)
                    found = [Path(name) for name in archive.namelist()]
            except (OSError, zipfile.BadZipFile) as error:
                raise UserError(f"{path} must be a zip that can be read: {error}") from error
        edges = [file for file in found if file.name.endswith(EDGES)]
        if len(edges) != 1:
            shown = ", ".join(file.name for file in (edges or found)[:6]) or "nothing"
            raise UserError(f"{path} must hold one file *{EDGES} of a TUDataset, got {shown}")
        stem, folder = edges[0].name.removesuffix(EDGES), edges[0].parent
        listed = {file.name: file for file in found if file.parent == folder}
        names = {
            part: listed[f"{stem}_{part}.txt"]
            for part in ("A", INDICATOR, *OPTIONAL)
            if f"{stem}_{part}.txt" in listed
        }
        if INDICATOR not in names:
            raise UserError(f"{path} must hold {stem}_{INDICATOR}.txt, got {', '.join(listed)}")
        return cls(path, names)

    def target(self, given: str | Sequence[str]) -> str:
        """Tell what is predicted; what is not there is rejected."""
        asked = [given] if isinstance(given, str) and given else list(given)
        there = [name for name in TARGETS if name in self.names]
        if len(asked) > 1 or any(name not in there for name in asked):
            raise UserError(
                f"{self.path}: target must be one of {', '.join(there)}, got {', '.join(asked)}"
            )
        found = asked or [name for name in there if TARGETS[name] == "graph"]
        if not found:
            raise UserError(
                f"{self.path} must hold graph_labels or graph_attributes, or target must name one "
                f"of {', '.join(there)}; got {', '.join(file.name for file in self.names.values())}"
            )
        return found[0]

    def where(self, part: str) -> Where:
        """What a message calls the rows of a file."""
        return lambda row: f"{self.path}: {self.names[part].name}, line {row + 1}"

    def read(self, part: str) -> Values:
        """Read a file of numbers with commas between them."""
        name = self.names[part]
        if self.path.is_dir():
            with name.open("rb") as file:
                return self._numbers(part, file)
        with zipfile.ZipFile(self.path) as archive, archive.open(name.as_posix()) as file:
            return self._numbers(part, file)

    def _numbers(self, part: str, file: Any) -> Values:
        import pandas as pd

        try:
            table = pd.read_csv(file, header=None, skipinitialspace=True, dtype=str)
        except (ValueError, zipfile.BadZipFile) as error:
            name = self.names[part].name
            raise UserError(f"{self.path}: {name} must hold numbers: {error}") from error
        values = table.apply(pd.to_numeric, errors="coerce")
        is_gap = table.apply(lambda cells: cells.str.strip().str.lower().isin(["nan", ""]))
        is_wrong = (values.isna() & ~is_gap & table.notna()).to_numpy()
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0].tolist()
            got = table.iloc[row, column]
            raise UserError(f"{self.where(part)(row)}: must hold numbers, got {got!r}")
        return values.to_numpy(dtype=np.float64)

    def whole(self, part: str) -> Int[np.ndarray, "rows columns"]:
        """Read a file of whole numbers."""
        values = self.read(part)
        is_wrong = ~(np.abs(values) < 2**53) | (values != np.round(values))
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0].tolist()
            raise UserError(
                f"{self.where(part)(row)}: must hold whole numbers, got {values[row, column]}"
            )
        return values.astype(np.int64)


def _columns(
    files: _Files, target: str, known: tuple[str, ...]
) -> tuple[GraphColumns, Int[Tensor, " nodes"], tuple[str, ...]]:
    """Lay the graphs end to end, without labels; give the row of each node, and the features."""
    indicator = files.whole(INDICATOR)
    where = files.where(INDICATOR)
    if indicator.shape[1] != 1 or int(indicator.min()) < 1:
        raise UserError(f"{where(int(indicator[:, 0].argmin()))}: a graph must be counted from 1")
    owner = torch.from_numpy(indicator[:, 0] - 1)
    counts = torch.bincount(owner)
    if not bool(counts.all()):
        number = int((counts == 0).nonzero()[0]) + 1
        raise UserError(f"{where(0).rpartition(',')[0]}: graph {number} must have a node, got none")
    order, node_ptr = owner.argsort(stable=True), boundaries(counts)
    local = torch.empty_like(order)
    local[order] = torch.arange(len(order)) - node_ptr[owner[order]]

    pairs = torch.from_numpy(files.whole("A")) - 1
    is_wrong = (pairs < 0) | (pairs >= len(owner))
    if pairs.shape[1] == 2 and not bool(is_wrong.any()):  # noqa: PLR2004
        is_wrong = (owner[pairs[:, 0]] != owner[pairs[:, 1]])[:, None]
    if pairs.shape[1] != 2 or bool(is_wrong.any()):  # noqa: PLR2004
        row = int(is_wrong.any(dim=1).nonzero()[0]) if bool(is_wrong.any()) else 0
        raise UserError(
            f"{files.where('A')(row)}: an edge must be two nodes of one graph, counted from 1 to "
            f"{len(owner)}, got {(pairs[row] + 1).tolist()}"
        )
    graph = owner[pairs[:, 0]]
    place = graph.argsort(stable=True)

    x, x_names = _features(files, "node", len(owner), target, known)
    attributes, edge_names = _features(files, "edge", len(pairs), target, known)
    columns = GraphColumns(
        node_ptr=node_ptr,
        edge_ptr=boundaries(torch.bincount(graph, minlength=len(counts))),
        edge_index=local[pairs].T[:, place].contiguous(),
        # a model needs some feature; without any, all nodes look alike
        nodes={"x": x[order] if x_names else torch.ones(len(order), 1)},
        edges={"edge_attr": attributes[place]} if edge_names else {},
        source=f"read from {files.path.name}",
    )
    return columns, order, (*x_names, *edge_names)


def _features(
    files: _Files, of: str, rows: int, target: str, known: tuple[str, ...]
) -> tuple[Float[Tensor, "rows columns"], list[str]]:
    """Attributes as they are, and a column of 0 and 1 for each value of a label."""
    found: list[np.ndarray] = []
    names: list[str] = []
    part = f"{of}_attributes"
    if part in files.names and part != target:
        values = files.read(part)
        _check_rows(files, part, len(values), rows)
        is_wrong = ~(np.abs(values) <= LARGEST)
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0].tolist()
            raise UserError(
                f"{files.where(part)(row)}: an attribute must be a finite number of 32 bits, "
                f"got {values[row, column]}"
            )
        found.append(values)
        names += [f"{of}s/attribute.{column}" for column in range(values.shape[1])]
    part = f"{of}_labels"
    if part in files.names and part != target:
        labels = files.whole(part)
        _check_rows(files, part, len(labels), rows)
        for column, values in enumerate(labels.T):
            stem = f"{of}s/label=" if labels.shape[1] == 1 else f"{of}s/label.{column}="
            stated = [int(name.removeprefix(stem)) for name in known if name.startswith(stem)]
            kinds = np.array(stated) if known else np.unique(values)
            is_kind = values[:, None] == kinds
            if not is_kind.any(axis=1).all():
                row = int((~is_kind.any(axis=1)).argmax())
                raise UserError(
                    f"{files.where(part)(row)}: a label must be one that the model was trained on, "
                    f"{', '.join(map(str, kinds)) or 'none'}; got {values[row]}"
                )
            found.append(is_kind)
            names += [f"{stem}{kind}" for kind in kinds]
    joined = np.concatenate(found, axis=1, dtype=np.float32) if found else np.empty((rows, 0))
    return torch.from_numpy(joined.astype(np.float32)), names


def _check_rows(files: _Files, part: str, found: int, wanted: int) -> None:
    if found != wanted:
        name = files.names[part].name
        raise UserError(f"{files.path}: {name} must have {wanted} lines, got {found}")

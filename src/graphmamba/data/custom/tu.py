"""Reader of a TUDataset, in a folder or a zip.

https://chrsmrrs.github.io/datasets/docs/format/ describes them: `DS_A.txt` has the edges of all
graphs, `DS_graph_indicator.txt` the graph of each node, both counted from 1.
"""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import CustomData, CustomGraphs, LabelRule, numbers_of
from graphmamba.data.custom.npz import Arrays, assemble, assemble_unlabelled, check_unpacked
from graphmamba.data.tables import boundaries
from graphmamba.errors import UserError

INDICATOR = "graph_indicator"
# files that may hold the target; by default the first one that exists
TARGETS: dict[str, Level] = {
    "graph_labels": "graph",
    "graph_attributes": "graph",
    "node_labels": "node",
    "node_attributes": "node",
}
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error)
PARTS = ("A", INDICATOR, "edge_labels", "edge_attributes", *TARGETS)


def read_tu(
    path: Path | str,
    target: str | Sequence[str] = (),
    rule: LabelRule | None = None,
    level: Level | None = None,
) -> CustomData:
    """Read graphs with their labels; labels of nodes and edges are one-hot encoded.

    Args:
        path: A folder or a zip with the files of one set.
        target: What is predicted: `graph_labels`, `graph_attributes`, `node_labels` or
            `node_attributes`; left out, the first of them that describes graphs.
        rule: What labels are, where their values should not decide.
        level: What is labelled; the target decides.
    """
    files, rule = TuFiles(Path(path)), rule or LabelRule()
    target = files.target([target] if isinstance(target, str) and target else list(target))
    if level not in (None, TARGETS[target]):
        raise UserError(f"level must be {TARGETS[target]!r} for target={target!r}, got {level!r}")
    arrays, order, features = _arrays(files, target, ())
    y = files.read(target, len(order) if TARGETS[target] == "node" else len(arrays["node_ptr"]) - 1)
    found = np.unique(y[~np.isnan(y)])
    if rule == LabelRule() and target.endswith("attributes"):
        rule = LabelRule(task="regression")
    elif rule in (LabelRule(), LabelRule("classes")) and y.shape[1] == 1:
        # labels are classes by their value, whichever numbers they have
        names = tuple(str(int(value)) for value in found if value.is_integer())
        rule = LabelRule("classes", names if len(names) > 1 else None)
    arrays["y"] = torch.from_numpy(y)[order if TARGETS[target] == "node" else slice(None)]
    made = assemble(arrays, rule, TARGETS[target], f"read from {files.path.name}")
    if not made.task.classes:
        columns = y.shape[1]
        several = tuple(f"{target}.{number}" for number in range(columns))
        made = replace(made, class_names=several if columns > 1 else (target,))
    return replace(made, feature_names=features)


def read_tu_unlabelled(path: Path, target: Sequence[str], known: tuple[str, ...]) -> CustomGraphs:
    """Read graphs to predict, with the numbers that their files give to graphs and nodes."""
    files = TuFiles(path)
    arrays, order, features = _arrays(files, target[0] if target else "", known)
    columns = assemble_unlabelled(arrays, f"read from {path.name}")
    return CustomGraphs(
        columns=columns,
        features=numbers_of(columns),
        feature_names=features,
        graph_names=tuple(str(1 + number) for number in range(len(columns.node_ptr) - 1)),
        node_names=tuple(str(1 + node) for node in order.tolist()),
    )


@dataclass(frozen=True)
class TuFiles:
    """The files of the one set that a folder or zip holds."""

    path: Path

    @cached_property
    def names(self) -> dict[str, str]:
        """Where each part is, such as `graph_labels`: a path in the folder or zip."""
        if self.path.is_dir():
            found = sorted(file.name for file in self.path.glob("*.txt"))
        else:
            check_unpacked(self.path)
            with zipfile.ZipFile(self.path) as archive:
                found = archive.namelist()
        stems = [name.removesuffix("A.txt") for name in found if name.endswith("_A.txt")]
        stems = [stem for stem in stems if f"{stem}{INDICATOR}.txt" in found]
        if len(stems) != 1:
            raise UserError(
                f"{self.path} must hold one pair of files *_A.txt and *_{INDICATOR}.txt of a "
                f"TUDataset, got {', '.join(found[:6]) or 'nothing'}"
            )
        (stem,) = stems
        return {part: f"{stem}{part}.txt" for part in PARTS if f"{stem}{part}.txt" in found}

    def target(self, asked: list[str]) -> str:
        """Name of the target file; a missing one is rejected."""
        there = [name for name in TARGETS if name in self.names]
        found = asked or [name for name in there if TARGETS[name] == "graph"][:1]
        if len(found) != 1 or found[0] not in there:
            raise UserError(
                f"{self.path}: target must be one of {', '.join(there)}, got "
                f"{', '.join(asked) or 'none, and no labels of graphs'}"
            )
        return found[0]

    def read(self, part: str, rows: int | None = None) -> Float[np.ndarray, "rows columns"]:
        """Read a file of numbers with commas between them, in so many rows."""
        import pandas as pd

        name = self.names[part]
        try:
            folder: Any = self.path if self.path.is_dir() else zipfile.Path(self.path)
            with (folder / name).open("rb") as file:
                table = pd.read_csv(file, header=None, skipinitialspace=True)
            values = table.to_numpy(dtype=np.float64, copy=True)
        # zips that are damaged, packed with a password or in a way that Python lacks
        except (ValueError, OSError, EOFError, RuntimeError, *BROKEN_ZIP) as error:
            raise UserError(f"{self.path}: {name} must hold numbers: {error}") from error
        if rows is not None and len(values) != rows:
            raise UserError(f"{self.path}: {name} must have {rows} lines, got {len(values)}")
        return values

    def whole(self, part: str, rows: int | None = None) -> Tensor:
        """Read a file of whole numbers [rows, columns]."""
        values = self.read(part, rows)
        is_wrong = ~(np.abs(values) < 2**53) | (values != np.round(values))
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0].tolist()
            raise UserError(
                f"{self.where(part, row)}: must hold whole numbers, got {values[row, column]}"
            )
        return torch.from_numpy(values.astype(np.int64))

    def where(self, part: str, row: int) -> str:
        """What a message calls a row."""
        return f"{self.path}: {self.names[part]}, line {row + 1}"


def _arrays(
    files: TuFiles, target: str, known: tuple[str, ...]
) -> tuple[Arrays, Tensor, tuple[str, ...]]:
    """Lay the graphs end to end, without labels; give the row of each node, and the features."""
    owner = files.whole(INDICATOR)[:, 0] - 1
    is_none = (owner < 0) | (owner >= len(owner))
    if bool(is_none.any()):
        row = int(is_none.int().argmax())
        raise UserError(
            f"{files.where(INDICATOR, row)}: a graph must be counted from 1, and have a node, got "
            f"{int(owner[row]) + 1}"
        )
    order, node_ptr = owner.argsort(stable=True), boundaries(owner.bincount())
    local = torch.empty_like(order)
    local[order] = torch.arange(len(order)) - node_ptr[owner[order]]
    pairs = files.whole("A") - 1
    is_node = ((pairs >= 0) & (pairs < len(owner))).all(dim=1) & (pairs.shape[1] == 2)  # noqa: PLR2004
    inside = pairs.clamp(0, len(owner) - 1)
    is_wrong = ~is_node | (owner[inside[:, 0]] != owner[inside[:, -1]])
    if bool(is_wrong.any()):
        row = int(is_wrong.int().argmax())
        raise UserError(
            f"{files.where('A', row)}: an edge must be two nodes of one graph, counted from 1 to "
            f"{len(owner)}, got {(pairs[row] + 1).tolist()}"
        )
    graph = owner[pairs[:, 0]]
    place = graph.argsort(stable=True)
    arrays: Arrays = {
        "node_ptr": node_ptr,
        "edge_ptr": boundaries(graph.bincount(minlength=len(node_ptr) - 1)),
        "edge_index": local[pairs].T[:, place].contiguous(),
    }
    features: list[str] = []
    for of, name, rows in (("node", "x", order), ("edge", "edge_attr", place)):
        columns = _features(files, of, len(rows), target, known)
        if columns:
            arrays[name] = torch.stack([*columns.values()], dim=1)[rows]
        features += columns
    return arrays, order, tuple(features)


def _features(
    files: TuFiles, of: str, rows: int, target: str, known: tuple[str, ...]
) -> dict[str, Float[Tensor, " rows"]]:
    """Attributes as they are, and one-hot encoded labels."""
    found: dict[str, Tensor] = {}
    part = f"{of}_attributes"
    if part in files.names and part != target:
        values = torch.from_numpy(files.read(part, rows).astype(np.float32))
        found = {f"{of}s/attribute.{number}": column for number, column in enumerate(values.T)}
    part = f"{of}_labels"
    if part in files.names and part != target:
        labels = files.whole(part, rows)
        for number, values in enumerate(labels.T):
            stem = f"{of}s/label=" if labels.shape[1] == 1 else f"{of}s/label.{number}="
            kinds = values.unique().tolist()
            if known:
                stated = [name.removeprefix(stem) for name in known if name.startswith(stem)]
                if strange := [str(kind) for kind in kinds if str(kind) not in stated]:
                    row = int((values == int(strange[0])).int().argmax())
                    raise UserError(
                        f"{files.where(part, row)}: a label must be one that the model was trained "
                        f"on, {', '.join(stated) or 'none'}; got {strange[0]}"
                    )
                kinds = [int(kind) for kind in stated]
            found |= {f"{stem}{kind}": (values == kind).float() for kind in kinds}
    return found


def tu_files(path: Path) -> list[Path]:
    """List the files that the cache depends on."""
    return [path] if path.is_file() else [path / name for name in TuFiles(path).names.values()]

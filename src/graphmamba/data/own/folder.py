"""A folder of `nodes.csv`, `edges.csv`, `graphs.csv`, `pairs.csv` -> columns and a task."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice, check_is
from graphmamba.data.catalog import Level
from graphmamba.data.own.csv_table import CsvTable, read_csv, read_header
from graphmamba.data.own.labels import LabelRule, Labels, read_labels
from graphmamba.data.own.own_data import OwnData, numbers_of, task_of
from graphmamba.data.own.roster import Roster, list_graphs, list_nodes
from graphmamba.data.splits import SPLITS
from graphmamba.data.tables import LINKS, GraphColumns, Pairs, boundaries
from graphmamba.errors import UserError

KEYS = frozenset({"graph", "node", "source", "target", "split"})
LEVEL_FILES: dict[Level, str] = {"graph": "graphs.csv", "node": "nodes.csv", "link": "pairs.csv"}
FILES = ("nodes.csv", "edges.csv", "graphs.csv", "pairs.csv")
KEYS_OF = {"nodes.csv": {"graph", "node"}, "edges.csv": {"graph", "source", "target"}}
"""Columns that name rows, and are no features."""
ANSWERS = LabelRule(kind="multi-label")


@dataclass(frozen=True)
class Request:
    """What a user says about a folder or file."""

    label: tuple[str, ...]
    level: Level | None
    rule: LabelRule

    @classmethod
    def of(
        cls,
        label: str | Sequence[str],
        level: Level | None,
        rule: LabelRule,
        tables: Iterable[CsvTable],
    ) -> "Request":
        """Check what was said; `tables` are those that may hold labels."""
        names = (label,) if isinstance(label, str) else label
        check_is("label", names, Sequence, "the name of a column, or several in a list")
        names = tuple(names)
        check_choice("level", level, (None, *LEVEL_FILES))
        check_is("rule", rule, LabelRule)
        if not names or len(set(names)) < len(names):
            raise UserError(
                "label (--label, or --own.label where a model is trained) must name one column or "
                f"several different ones, got {', '.join(names) or 'none'}; {_listed(tables)}"
            )
        if wrong := [name for name in names if name in KEYS]:
            raise UserError(f"label must be none of {sorted(KEYS)}, got {wrong[0]!r}")
        return cls(names, level, rule)


def _listed(tables: Iterable[CsvTable]) -> str:
    """Say which columns could be labels."""
    found = {
        table.path.name: ", ".join(name for name in table.columns if name not in KEYS)
        for table in tables
    }
    told = [f"{file} has {names}" for file, names in found.items() if names]
    return "; ".join(told) or f"there is no column but {', '.join(sorted(KEYS))}"


def read_folder(
    folder: Path | str,
    label: str | Sequence[str],
    rule: LabelRule | None = None,
    level: Level | None = None,
    is_undirected: bool = False,
) -> OwnData:
    """Read a user's graphs; `docs/own-data.md` describes the files.

    Args:
        folder: Where the files are.
        label: The label column, or several of them.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the file that has the label column should not decide.
        is_undirected: Whether each edge is written once and goes both ways.
    """
    check_is("is_undirected", is_undirected, bool)
    tables = read_tables(Path(folder))
    request = Request.of(label, level, rule or LabelRule(), _that_may_hold_labels(tables))
    level = _find_level(tables, request)
    labels = _read_labels(tables[LEVEL_FILES[level]], request, level)
    graphs, nodes = tables.get("graphs.csv"), tables["nodes.csv"]
    roster = list_nodes(nodes, list_graphs(graphs, nodes), graphs)
    columns = columns_of_tables(tables, roster, request.label, is_undirected)
    _place_labels(columns, tables, roster, level, labels)
    names = () if level == "link" else labels.names
    columns = replace(columns, split=read_split(graphs))
    return OwnData(columns, numbers_of(columns), task_of(level, labels), names)


def read_tables(folder: Path) -> dict[str, CsvTable]:
    """Read the files of a folder by their names."""
    if not folder.is_dir():
        raise UserError(f"folder must be a folder, got {str(folder)!r}")
    needed = ("nodes.csv", "edges.csv")
    optional = (name for name in ("graphs.csv", "pairs.csv") if (folder / name).exists())
    return {name: read_csv(folder / name) for name in (*needed, *optional)}


def _that_may_hold_labels(tables: dict[str, CsvTable]) -> list[CsvTable]:
    return [tables[file] for file in LEVEL_FILES.values() if file in tables]


def _find_level(tables: dict[str, CsvTable], request: Request) -> Level:
    """Labels are of whatever the file that has the first label column lists."""
    if request.level is not None:
        if LEVEL_FILES[request.level] not in tables:
            raise UserError(f"level={request.level!r} needs {LEVEL_FILES[request.level]}, got none")
        return request.level
    name = request.label[0]
    found: list[Level] = [
        level
        for level, file in LEVEL_FILES.items()
        if file in tables and name in tables[file].columns
    ]
    folder = tables["nodes.csv"].path.parent
    if not found:
        may_hold = _that_may_hold_labels(tables)
        listed = ", ".join(table.path.name for table in may_hold)
        raise UserError(
            f"{folder}: label (--label, or --own.label where a model is trained) must be a column "
            f"of {listed}, got {name!r}; {_listed(may_hold)}"
        )
    if len(found) > 1:
        files = [LEVEL_FILES[level] for level in found]
        raise UserError(f"{folder}: column {name!r} is in {files}; level must say which is meant")
    return found[0]


def _read_labels(table: CsvTable, request: Request, level: Level) -> Labels:
    cells = {name: table.cells(name) for name in request.label}
    if level != "link":
        return read_labels(cells, request.rule, table.where)
    if request.rule != LabelRule() or len(cells) > 1:
        raise UserError(f"pairs have one label of 0 and 1, got {request.rule} for {[*cells]}")
    return read_labels(cells, ANSWERS, table.where)


def columns_of_tables(
    tables: dict[str, CsvTable], roster: Roster, label: tuple[str, ...], is_undirected: bool
) -> GraphColumns:
    """Lay the graphs of the files end to end, without their labels and parts."""
    nodes, edges = tables["nodes.csv"], tables["edges.csv"]
    graph, index = roster.pairs(edges)
    attributes = edges.numbers(_features("edges.csv", edges.columns, label))
    if is_undirected:
        # the way back of a self-loop is the self-loop
        back = (index[0] != index[1]).nonzero().flatten()
        graph = torch.cat([graph, graph[back]])
        index = torch.cat([index, index.flip(0)[:, back]], dim=1)
        attributes = torch.cat([attributes, attributes[back]])
    order = graph.argsort(stable=True)
    x = nodes.numbers(_features("nodes.csv", nodes.columns, label))[roster.order]
    return GraphColumns(
        node_ptr=roster.node_ptr,
        edge_ptr=boundaries(torch.bincount(graph, minlength=roster.graphs)),
        edge_index=index[:, order],
        # a model needs some feature; without any, all nodes look alike
        nodes={"x": x if x.shape[1] else torch.ones(len(x), 1)},
        edges={"edge_attr": attributes[order]} if attributes.shape[1] else {},
        source=f"read from {nodes.path.parent.name}",
    )


def _place_labels(
    columns: GraphColumns,
    tables: dict[str, CsvTable],
    roster: Roster,
    level: Level,
    labels: Labels,
) -> None:
    if level == "graph":
        columns.graphs["y"] = labels.values
    elif level == "node":
        columns.nodes["y"] = labels.values[roster.order]
    else:
        answers = labels.values[:, 0]
        columns.pairs[LINKS] = lay_pairs(tables["pairs.csv"], roster, answers)


def lay_pairs(
    pairs: CsvTable, roster: Roster, answers: Float[Tensor, " rows"] | None = None
) -> Pairs:
    """Lay the rows of `pairs.csv` out graph by graph, each with its answer if it has one."""
    graph, index = roster.pairs(pairs)
    order = graph.argsort(stable=True)
    ptr = boundaries(torch.bincount(graph, minlength=roster.graphs))
    columns = {} if answers is None else {"edge_label": answers[order]}
    return Pairs(ptr, index[:, order], columns)


def folder_features(folder: Path, label: tuple[str, ...]) -> tuple[str, ...]:
    """Feature columns of a folder in their order, as `nodes/NAME`; reads the headers only."""
    return tuple(
        f"{file.removesuffix('.csv')}/{name}"
        for file in KEYS_OF
        for name in _features(file, read_header(folder / file), label)
    )


def _features(file: str, names: Iterable[str], label: tuple[str, ...]) -> list[str]:
    """Every column that neither names a row nor, in whichever file, is the label."""
    return [name for name in names if name not in KEYS_OF[file] and name not in label]


def read_split(graphs: CsvTable | None) -> Int[Tensor, " graphs"] | None:
    """Part of each row by its word in the column `split`; None where there is no such column."""
    if graphs is None or "split" not in graphs.columns:
        return None
    cells = graphs.filled("split")
    found = [SPLITS.get(cell, -1) for cell in cells]
    if -1 in found:
        row = found.index(-1)
        raise UserError(
            f"{graphs.where(row)}: split must be one of {', '.join(SPLITS)}, got {cells[row]!r}"
        )
    return torch.tensor(found, dtype=torch.int64)

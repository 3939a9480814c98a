"""A folder of tables -> columns and a task; anything irregular is rejected with its line."""

import csv
import gzip
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice, check_is
from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import (
    LARGEST,
    LINK_TASK,
    CustomData,
    LabelRule,
    numbers_of,
    parse_number,
    read_labels,
    task_of,
)
from graphmamba.data.splits import SPLITS, split_of_words
from graphmamba.data.tables import LINKS, NO_SPLIT, NODE_SPLIT, GraphColumns, Pairs, boundaries
from graphmamba.errors import UserError

CHUNK = 512
"""Rows kept as lists at a time: millions of them would keep the garbage collector busy."""
KEYS = frozenset({"graph", "node", "source", "target", "split"})
LEVEL_FILES: dict[Level, str] = {"graph": "graphs.csv", "node": "nodes.csv", "link": "pairs.csv"}
FILES = ("nodes.csv", "edges.csv", "graphs.csv", "pairs.csv")
"""What the tables of a folder are called; each may be packed, or parquet."""
KEYS_OF = {"nodes.csv": {"graph", "node", "split"}, "edges.csv": {"graph", "source", "target"}}
"""Columns that name rows, and are no features."""
ANSWER = {"true": 1, "false": 0}
"""How a column of answers is written by pandas."""


@dataclass(frozen=True)
class CsvTable:
    """The cells of a file with a header, column by column."""

    path: Path
    columns: dict[str, list[str]]
    lines: Sequence[int]
    """Line of the file on which each row ends, or its row, from 0, in a parquet file."""
    unit: str = "line"

    def where(self, row: int) -> str:
        """Name a row in a message."""
        # a file without rows is wrong as a whole
        return f"{self.path}, {self.unit} {self.lines[row]}" if self.lines else str(self.path)

    def rows(self, kept: Sequence[int]) -> "CsvTable":
        """Return some of the rows."""
        columns = {name: [cells[row] for row in kept] for name, cells in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in kept])

    def cells(self, name: str) -> list[str]:
        """Return a column that must be there."""
        if name not in self.columns:
            raise UserError(
                f"{self.path}, line 1: column {name!r} must be there, got {list(self.columns)}"
            )
        return self.columns[name]

    def filled(self, name: str) -> list[str]:
        """Return a column that must be there and have no empty cell."""
        cells = self.cells(name)
        if "" in cells:
            raise UserError(f"{self.where(cells.index(''))}: {name} must not be empty, got ''")
        return cells

    def numbers(self, names: Sequence[str]) -> Float[Tensor, "rows columns"]:
        """Return columns of finite numbers side by side."""
        values = np.empty((len(self.lines), len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            values[:, place] = self._finite(name)
        return torch.from_numpy(values)

    def _finite(self, name: str) -> Float[np.ndarray, " rows"]:
        cells = self.cells(name)
        try:
            values = np.array(list(map(float, cells)), dtype=np.float64)
            is_plain = "_" not in "".join(cells)
        except ValueError:
            is_plain = False
        if not is_plain:
            values = np.array(
                [float(ANSWER.get(cell.lower(), parse_number(cell, np.nan))) for cell in cells]
            )
        is_wrong = ~(np.abs(values) <= LARGEST)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise UserError(
                f"{self.where(row)}: {name} must be a finite number of 32 bits, got {cells[row]!r}"
            )
        return values


def table_in(folder: Path, name: str) -> Path:
    """Find a table of a folder: a .csv, .csv.gz or .parquet."""
    stem = name.removesuffix(".csv")
    found = [folder / f"{stem}{end}" for end in (".csv", ".csv.gz", ".parquet")]
    there = [file for file in found if file.exists()]
    if len(there) > 1:
        raise UserError(
            f"{folder} must hold one table of {stem}, got {', '.join(file.name for file in there)}"
        )
    return there[0] if there else folder / name


def read_csv(path: Path) -> CsvTable:
    """Read a file with a header, a .csv, .csv.gz or .parquet; blank lines are skipped."""
    if path.suffix == ".parquet":
        return _read_parquet(path)
    rows: list[list[str]] = []
    lines: list[int] = []
    with closing(_rows(path)) as found:
        header = _header(path, found)
        columns: list[list[str]] = [[] for _ in header]
        for line, row in found:
            if len(row) != len(header):
                raise UserError(
                    f"{path}, line {line}: a row must have {len(header)} cells, got {len(row)}"
                )
            rows.append(row)
            lines.append(line)
            if len(rows) == CHUNK:
                _move(rows, columns)
    _move(rows, columns)
    return CsvTable(path, dict(zip(header, columns, strict=True)), lines)


def read_header(path: Path) -> list[str]:
    """Read the names of a file's columns, and nothing below them."""
    if path.suffix == ".parquet":
        return list(_read_parquet(path).columns)
    with closing(_rows(path)) as found:
        return _header(path, found)


def check_regular(path: Path) -> None:
    """Reject what is no regular file: a pipe that nobody writes to would be waited for."""
    if path.exists() and not path.is_file():
        kind = "folder" if path.is_dir() else "pipe or device"
        raise UserError(f"{path} must be a file, got a {kind}")


def _rows(path: Path) -> Generator[tuple[int, list[str]], None, None]:
    """Rows that are not blank, each with the line on which it ends."""
    check_regular(path)
    try:
        # a mark of the byte order, which spreadsheets write, is no part of the first name
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
            except csv.Error as error:
                raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    except FileNotFoundError as missing:
        raise UserError(f"{path} must be there, got no such file") from missing
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} must be a file that can be read: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be text in UTF-8: {error}") from error


def _read_parquet(path: Path) -> CsvTable:
    """Read columns of numbers and words as the same table has them in a CSV."""
    check_regular(path)
    if not path.exists():
        raise UserError(f"{path} must be there, got no such file")
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as missing:
        raise UserError(
            f"{path} needs pyarrow: pip install 'graphmamba[parquet]', or pyarrow"
        ) from missing
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise UserError(f"{path} must be a parquet file that can be read: {error}") from error
    # what pandas calls its index has no place in a CSV either
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    _header(path, iter([(0, names)]))
    columns = {}
    for name in names:
        cells = table.column(name).to_pylist()
        if any(isinstance(cell, list | dict | bytes) for cell in cells):
            raise UserError(f"{path}: column {name!r} must hold numbers or words, got others")
        columns[name] = ["" if cell is None or cell != cell else str(cell) for cell in cells]  # noqa: PLR0124
    return CsvTable(path, columns, range(table.num_rows), "row")


def _header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    """Take the first row, which must name each column once."""
    line, header = next(rows, (0, []))
    if not header:
        raise UserError(f"{path} must begin with the names of its columns, got an empty file")
    for place, name in enumerate(header):
        if not name.strip():
            raise UserError(
                f"{path}, line {line}: column {place + 1} must have a name, got {name!r}"
            )
        if name in header[:place]:
            raise UserError(f"{path}, line {line}: column {name!r} must occur once, got two")
    return header


def _move(rows: list[list[str]], columns: list[list[str]]) -> None:
    """Empty the rows into the columns."""
    if rows:
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(cells)
    rows.clear()


@dataclass(frozen=True)
class Roster:
    """Where every node went."""

    node_ptr: Int[Tensor, " boundaries"]
    order: Int[Tensor, " nodes"]
    """Row of `nodes.csv` that each node of the columns comes from."""
    graph_number: dict[str, int]
    node_number: dict[tuple[str, str], int]
    """Number within its graph of each node, by graph and node."""

    @property
    def graphs(self) -> int:
        """How many graphs there are."""
        return len(self.graph_number)

    def pairs(self, table: CsvTable) -> tuple[Int[Tensor, " pairs"], Int[Tensor, "2 pairs"]]:
        """Graph, and both nodes within it, of each row of a table of pairs."""
        names = table.filled("graph")
        graph = _look_up(table, "graph", names, names, self.graph_number, "graph of nodes.csv")
        ends = []
        for side in ("source", "target"):
            nodes = table.filled(side)
            keys = zip(names, nodes, strict=True)
            ends.append(
                _look_up(
                    table, side, nodes, keys, self.node_number, "node of its graph in nodes.csv"
                )
            )
        return graph, torch.stack(ends)


def list_nodes(nodes: CsvTable, graphs: CsvTable | None) -> Roster:
    """Number graphs in the order of `graphs.csv`, or of their first nodes; nodes by `nodes.csv`."""
    names, own = nodes.filled("graph"), nodes.filled("node")
    if not names:
        raise UserError(f"{nodes.path} must list a node, got none")
    listed = list(dict.fromkeys(names))
    if graphs is not None:
        listed = graphs.filled("graph")
        _check_different(graphs, "graph", listed, listed)
    graph_number = {name: place for place, name in enumerate(listed)}
    keys = list(zip(names, own, strict=True))
    _check_different(nodes, "node", keys, own)
    graph = _look_up(nodes, "graph", names, names, graph_number, "graph of graphs.csv")
    counts = torch.bincount(graph, minlength=len(graph_number))
    if graphs is not None and not bool(counts.all()):
        row = int((counts == 0).nonzero()[0])
        name = graphs.columns["graph"][row]
        raise UserError(f"{graphs.where(row)}: graph must have a node in nodes.csv, got {name!r}")
    node_ptr, order = boundaries(counts), graph.argsort(stable=True)
    local = torch.empty_like(order)
    local[order] = torch.arange(len(order)) - node_ptr[graph[order]]
    return Roster(node_ptr, order, graph_number, dict(zip(keys, local.tolist(), strict=True)))


def _look_up(
    table: CsvTable,
    column: str,
    cells: list[str],
    keys: Iterable[object],
    numbers: dict[str, int] | dict[tuple[str, str], int],
    what: str,
) -> Int[Tensor, " rows"]:
    find: dict[object, int] = numbers  # type: ignore[assignment]
    found = [find.get(key, -1) for key in keys]
    if -1 in found:
        row = found.index(-1)
        raise UserError(f"{table.where(row)}: {column} must be a {what}, got {cells[row]!r}")
    return torch.tensor(found, dtype=torch.int64)


def _check_different(
    table: CsvTable, column: str, keys: Sequence[object], cells: list[str]
) -> None:
    if len(set(keys)) == len(keys):
        return
    seen: dict[object, int] = {}
    for row, key in enumerate(keys):
        if key in seen:
            raise UserError(
                f"{table.where(row)}: {column} must be listed once, got {cells[row]!r} "
                f"again after line {table.lines[seen[key]]}"
            )
        seen[key] = row


def check_target(target: str | Sequence[str], tables: Iterable[CsvTable]) -> tuple[str, ...]:
    """Name the target columns; `tables` are those that may hold them."""
    names = (target,) if isinstance(target, str) else target
    check_is("target", names, Sequence, "the name of a column, or several in a list")
    names = tuple(names)
    if not names or len(set(names)) < len(names):
        raise UserError(
            "target (--target, or --data.target where a model is trained) must name one column "
            f"or several different ones, got {', '.join(names) or 'none'}; {_listed(tables)}"
        )
    if wrong := [name for name in names if name in KEYS]:
        raise UserError(f"target must be none of {sorted(KEYS)}, got {wrong[0]!r}")
    return names


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
    target: str | Sequence[str],
    rule: LabelRule | None = None,
    level: Level | None = None,
    undirected: bool = False,
) -> CustomData:
    """Read a user's graphs; `docs/custom-data.md` describes the files.

    Args:
        folder: Where the files are.
        target: The target column, or several of them.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the file that has the target column should not decide.
        undirected: Whether each edge is written once and goes both ways.
    """
    rule = LabelRule() if rule is None else rule
    check_is("undirected", undirected, bool)
    check_choice("level", level, (None, *LEVEL_FILES))
    check_is("rule", rule, LabelRule)
    tables = read_tables(Path(folder))
    nodes, graphs = tables["nodes.csv"], tables.get("graphs.csv")
    if level == "link" and "pairs.csv" not in tables:
        # the edges of one graph, which are split before it is learned
        roster = list_nodes(nodes, graphs)
        if roster.graphs > 1:
            raise UserError(
                f"{folder}: level='link' needs pairs.csv where there are several graphs, got none "
                f"for {roster.graphs} graphs"
            )
        names = (target,) if isinstance(target, str) else tuple(target)
        columns = columns_of_tables(tables, roster, names, undirected)
        return CustomData(columns, numbers_of(columns), LINK_TASK)
    may_hold = [tables[file] for file in LEVEL_FILES.values() if file in tables]
    label = check_target(target, may_hold)
    level = level or _find_level(tables, label[0], may_hold)
    if LEVEL_FILES[level] not in tables:
        raise UserError(f"level={level!r} needs {LEVEL_FILES[level]}, got none")
    table = tables[LEVEL_FILES[level]]
    cells = {name: table.cells(name) for name in label}
    if level == "link":
        if rule != LabelRule() or len(cells) > 1:
            raise UserError(f"pairs have one label of 0 and 1, got {rule} for {[*cells]}")
        rule = LabelRule(task="multi-label")
    labels = read_labels(cells, rule, table.where)
    roster = list_nodes(nodes, graphs)
    columns = columns_of_tables(tables, roster, label, undirected)
    if level == "graph":
        columns.graphs["y"] = labels.values
    elif level == "node":
        columns.nodes["y"] = labels.values[roster.order]
    else:
        columns.pairs[LINKS] = lay_pairs(table, roster, labels.values[:, 0])
    names = () if level == "link" else labels.names
    columns = replace(columns, split=read_split(graphs))
    if "split" in nodes.columns:
        has_split = columns.split is not None
        columns.nodes[NODE_SPLIT] = _node_split(nodes, level, has_split)[roster.order]
    return CustomData(columns, numbers_of(columns), task_of(level, labels), names)


def read_tables(folder: Path) -> dict[str, CsvTable]:
    """Read the files of a folder by their names."""
    if not folder.is_dir():
        raise UserError(f"folder must be a folder, got {str(folder)!r}")
    files = {name: table_in(folder, name) for name in FILES}
    tables = {
        name: read_csv(file) for name, file in files.items() if name == "edges.csv" or file.exists()
    }
    if "graphs.csv" not in tables and not any("graph" in each.columns for each in tables.values()):
        # files of a single graph need not name it
        tables = {
            name: replace(each, columns={"graph": ["0"] * len(each.lines), **each.columns})
            for name, each in tables.items()
        }
    if "nodes.csv" not in tables:
        tables["nodes.csv"] = _nodes_of(tables["edges.csv"])
    return tables


def _nodes_of(edges: CsvTable) -> CsvTable:
    """List the ends of edges, in the order of the graphs in an edge list: there are no others."""
    names, ends = edges.filled("graph"), (edges.filled("source"), edges.filled("target"))
    keys = dict.fromkeys(
        key
        for name, *pair in zip(names, *ends, strict=True)
        for key in ((name, pair[0]), (name, pair[1]))
    )
    columns = {"graph": [name for name, _ in keys], "node": [node for _, node in keys]}
    return CsvTable(edges.path, columns, range(len(keys)), "node")


def _find_level(tables: dict[str, CsvTable], name: str, may_hold: list[CsvTable]) -> Level:
    """Labels are of whatever the file that has the first label column lists."""
    found: list[Level] = [
        level
        for level, file in LEVEL_FILES.items()
        if file in tables and name in tables[file].columns
    ]
    folder = tables["nodes.csv"].path.parent
    if not found:
        listed = ", ".join(table.path.name for table in may_hold)
        raise UserError(
            f"{folder}: target (--target, or --data.target where a model is trained) must be a "
            f"column of {listed}, got {name!r}; {_listed(may_hold)}"
        )
    if len(found) > 1:
        files = [LEVEL_FILES[level] for level in found]
        raise UserError(f"{folder}: column {name!r} is in {files}; level must say which is meant")
    return found[0]


def columns_of_tables(
    tables: dict[str, CsvTable], roster: Roster, label: tuple[str, ...], undirected: bool
) -> GraphColumns:
    """Lay the graphs of the files end to end, without their labels and splits."""
    nodes, edges = tables["nodes.csv"], tables["edges.csv"]
    graph, index = roster.pairs(edges)
    attributes = edges.numbers(_features("edges.csv", edges.columns, label))
    if undirected:
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
        if file == "edges.csv" or table_in(folder, file).exists()
        for name in _features(file, read_header(table_in(folder, file)), label)
    )


def _features(file: str, names: Iterable[str], label: tuple[str, ...]) -> list[str]:
    """Every column that neither names a row nor, in whichever file, is the label."""
    return [name for name in names if name not in KEYS_OF[file] and name not in label]


def _node_split(nodes: CsvTable, level: Level, has_split: bool) -> Int[Tensor, " rows"]:
    """Split of each row of `nodes.csv` by its word; an empty cell is in none."""
    if level != "node" or has_split:
        why = f"level={level!r}" if level != "node" else "graphs that graphs.csv splits"
        raise UserError(f"{nodes.path}, line 1: column 'split' must be left out for {why}")
    found = split_of_words(nodes.cells("split"), nodes.where, empty=NO_SPLIT)
    if missing := [name for name, number in SPLITS.items() if not bool((found == number).any())]:
        raise UserError(f"{nodes.path}: split must name a node for {missing[0]}, got none")
    return found


def read_split(table: CsvTable | None, column: str = "split") -> Int[Tensor, " graphs"] | None:
    """Split of each row by its word in a column; None where there is no such column."""
    if table is None or column not in table.columns:
        return None
    return split_of_words(table.filled(column), table.where)

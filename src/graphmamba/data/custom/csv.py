"""Reader of a folder of tables (`read_folder`); errors are reported with file and line."""

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    CustomGraphs,
    LabelRule,
    numbers_of,
    parse_number,
    read_labels,
    task_of,
)
from graphmamba.data.splits import SPLITS, split_of_words
from graphmamba.data.tables import LINKS, NO_SPLIT, NODE_SPLIT, GraphColumns, Pairs, boundaries
from graphmamba.errors import UserError

TABLES = ("nodes", "edges", "graphs", "pairs")
LEVEL_TABLES: dict[Level, str] = {"graph": "graphs", "node": "nodes", "link": "pairs"}
ENDINGS = (".csv", ".csv.gz", ".parquet")
KEYS = frozenset({"graph", "node", "source", "target", "split"})
KEYS_OF = {"nodes": {"graph", "node", "split"}, "edges": {"graph", "source", "target"}}
ANSWER = {"true": 1.0, "false": 0.0}  # how pandas writes a Boolean column
TARGET = "target (`train --data.target`, otherwise `--target`)"


@dataclass(frozen=True)
class CsvTable:
    """The cells of a table with a header, as text."""

    path: Path
    frame: Any  # a `DataFrame` whose index is the line (or row) in the file
    unit: str = "line"

    def where(self, row: int) -> str:
        """Name of a row in messages; a file without rows is wrong as a whole."""
        if not len(self.frame):
            return str(self.path)
        return f"{self.path}, {self.unit} {self.frame.index[row]}"

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.frame.columns)

    def cells(self, name: str) -> list[str]:
        """Return a column; raises if it is missing."""
        if name not in self.names:
            raise UserError(f"{self.path}, line 1: column {name!r} must be there, got {self.names}")
        return self.frame[name].tolist()

    def filled(self, name: str) -> list[str]:
        """Return a column; raises if it is missing or has an empty cell."""
        cells = self.cells(name)
        if "" in cells:
            raise UserError(f"{self.where(cells.index(''))}: {name} must not be empty, got ''")
        return cells

    def numbers(self, names: Sequence[str]) -> Float[Tensor, "rows columns"]:
        """Return columns of finite numbers as an array."""
        values = np.empty((len(self.frame), len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            cells = self.cells(name)
            column = np.array([ANSWER.get(c.lower(), parse_number(c, np.nan)) for c in cells])
            is_wrong = ~(np.abs(column) <= LARGEST)
            if is_wrong.any():
                row = int(is_wrong.argmax())
                is_word = any(map(str.isalpha, cells[row])) and parse_number(cells[row], 0.0) == 0
                hint = "; of words each needs a column of 0 and 1" if is_word else ""
                raise UserError(
                    f"{self.where(row)}: {name} must be a finite number of 32 bits, got "
                    f"{cells[row]!r}{hint}"
                )
            values[:, place] = column
        return torch.from_numpy(values)


def table_in(folder: Path, name: str) -> Path | None:
    """Find a table in a folder: a .csv, .csv.gz or .parquet."""
    found = [folder / f"{name}{end}" for end in ENDINGS if (folder / f"{name}{end}").exists()]
    if len(found) > 1:
        listed = ", ".join(file.name for file in found)
        raise UserError(f"{folder} must hold one table of {name}, got {listed}")
    if found and not found[0].is_file():
        # a pipe that nobody writes to would be waited for
        kind = "a folder" if found[0].is_dir() else "a pipe or device"
        raise UserError(f"{found[0]} must be a file, got {kind}")
    return found[0] if found else None


def read_csv(path: Path) -> CsvTable:
    """Read a file with a header, a .csv, .csv.gz or .parquet, as text; blank lines are skipped."""
    import pandas as pd

    if not path.is_file():
        raise UserError(f"{path} must be a file, got {'a folder' if path.is_dir() else 'none'}")
    if path.suffix == ".parquet":
        table = _read_parquet(path)
    else:
        try:
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, strict=True)
                # a row is reported with the line on which it ends
                rows = [(reader.line_num, row) for row in reader]
        except (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
            raise UserError(
                f"{path} must be a table that can be read, in UTF-8 with commas between its "
                f"columns: {error}"
            ) from error
        names = rows[0][1] if rows else [""]
        if len(names) == 1 and {";", "\t"} & set(names[0]):
            raise UserError(f"{path} must have commas between its columns, got {names[0]!r}")
        filled = {line: row for line, row in rows[1:] if any(row)}
        for line, row in filled.items():
            if len(row) != len(names):
                raise UserError(
                    f"{path}, line {line}: a row must have {len(names)} cells, got {len(row)}"
                )
        cells = [*filled.values()]
        table = CsvTable(path, pd.DataFrame(cells, index=[*filled], columns=names, dtype=object))
    if not all(map(str.strip, table.names)) or len(set(table.names)) < len(table.names):
        listed = ", ".join(map(repr, table.names))
        raise UserError(f"{path} must begin with different names of its columns, got {listed}")
    return table


def _read_parquet(path: Path) -> CsvTable:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError as missing:
        raise UserError(
            f"{path} needs pyarrow: pip install 'graphmamba[parquet]', or pyarrow"
        ) from missing
    except (OSError, ValueError) as error:
        raise UserError(f"{path} must be a parquet file that can be read: {error}") from error
    frame = frame.reset_index(drop=frame.index.name is None)
    return CsvTable(path, frame.astype(object).where(frame.notna(), "").map(str), "row")


@dataclass(frozen=True)
class NodeIndex:
    """Index of all nodes by name."""

    graphs: Any  # names of the graphs, a pandas `Index`
    nodes: Any  # graph and name of each row of the node table, a pandas `MultiIndex`
    node_ptr: Int[Tensor, " boundaries"]
    order: Int[Tensor, " nodes"]  # row of the node table that each node comes from
    place: Int[Tensor, " nodes"]  # index within its graph of each row

    def pairs(self, table: CsvTable) -> tuple[Int[Tensor, " pairs"], Int[Tensor, "2 pairs"]]:
        """Graph, and both nodes within it, of each row of a table of pairs."""
        import pandas as pd

        names = table.filled("graph")
        graph = _look_up(table, "graph", self.graphs, names, "graph of the nodes")
        ends = []
        for side in ("source", "target"):
            keys = pd.MultiIndex.from_arrays([names, table.filled(side)])
            ends.append(self.place[_look_up(table, side, self.nodes, keys, "node of its graph")])
        return graph, torch.stack(ends)


def _list_nodes(nodes: CsvTable, graphs: CsvTable | None) -> NodeIndex:
    """Number graphs in the order of `graphs.csv`, or of their first nodes; nodes in theirs."""
    import pandas as pd

    names = nodes.filled("graph")
    keys = pd.MultiIndex.from_arrays([names, nodes.filled("node")])
    if not names:
        raise UserError(f"{nodes.path} must list a node, got none")
    listed = pd.Index(names, dtype=object).unique()
    if graphs is not None:
        listed = pd.Index(graphs.filled("graph"), dtype=object)
        _check_different(graphs, "graph", listed)
    _check_different(nodes, "node", keys)
    graph = _look_up(nodes, "graph", listed, names, "graph of graphs.csv")
    counts = torch.bincount(graph, minlength=len(listed))
    if graphs is not None and not bool(counts.all()):
        row = int((counts == 0).nonzero()[0])
        raise UserError(
            f"{graphs.where(row)}: graph must have a node in nodes.csv, got {listed[row]!r}"
        )
    node_ptr, order = boundaries(counts), graph.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - node_ptr[graph[order]]
    return NodeIndex(listed, keys, node_ptr, order, place)


def _look_up(table: CsvTable, column: str, index: Any, keys: Any, what: str) -> Int[Tensor, " row"]:
    """Position of each key in an index; the keys are those of a column of the table."""
    found = index.get_indexer(keys)
    if (found < 0).any():
        row = int((found < 0).argmax())
        got = table.cells(column)[row]
        raise UserError(f"{table.where(row)}: {column} must be a {what}, got {got!r}")
    return torch.from_numpy(found.astype(np.int64))


def _check_different(table: CsvTable, column: str, index: Any) -> None:
    if not index.is_unique:
        row = int(index.duplicated().argmax())
        got = table.cells(column)[row]
        raise UserError(f"{table.where(row)}: {column} must be listed once, got {got!r} again")


def check_target(target: str | Sequence[str], tables: Sequence[CsvTable]) -> tuple[str, ...]:
    """Check the target columns; `tables` may hold them."""
    names = (target,) if isinstance(target, str) else target
    check_is("target", names, Sequence, "the name of a column, or several in a list")
    names = tuple(names)
    if not names or len(set(names)) < len(names):
        raise UserError(
            f"{TARGET} must name one column or several different ones, "
            f"got {', '.join(names) or 'none'}; {_candidates(tables)}"
        )
    if wrong := [name for name in names if name in KEYS]:
        raise UserError(f"target must be none of {sorted(KEYS)}, got {wrong[0]!r}")
    return names


def _candidates(tables: Sequence[CsvTable]) -> str:
    """List the columns that could be targets."""
    found = {each.path.name: [name for name in each.names if name not in KEYS] for each in tables}
    told = [f"{file} has {', '.join(names)}" for file, names in found.items() if names]
    return "; ".join(told) or f"there is no column but {', '.join(sorted(KEYS))}"


def read_folder(
    folder: Path | str,
    target: str | Sequence[str],
    rule: LabelRule | None = None,
    level: Level | None = None,
    undirected: bool = False,
) -> CustomData:
    """Read a folder of tables; `docs/custom-data.md` describes the files.

    Args:
        folder: Directory of the files.
        target: The target column, or several of them.
        rule: What labels are, where their values should not decide.
        level: What is labelled, if several files have the target column.
        undirected: Whether to add the reverse of every edge.
    """
    rule, folder = rule or LabelRule(), Path(folder)
    check_is("undirected", undirected, bool)
    check_choice("level", level, (None, *LEVEL_TABLES))
    check_is("rule", rule, LabelRule)
    tables = _read_tables(folder)
    if level == "link" and "pairs" not in tables:
        # the edges of one graph, which are split before it is learned
        names = (target,) if isinstance(target, str) else tuple(target)
        return _graphs_of(folder, tables, names, undirected)[0].labelled(LINK_TASK)
    may_hold = [tables[name] for name in LEVEL_TABLES.values() if name in tables]
    label = check_target(target, may_hold)
    level = level or _find_level(folder, tables, label[0], may_hold)
    if LEVEL_TABLES[level] not in tables:
        raise UserError(f"level={level!r} needs {LEVEL_TABLES[level]}.csv, got none")
    table = tables[LEVEL_TABLES[level]]
    cells = {name: table.cells(name) for name in label}
    if level == "link":
        if rule != LabelRule() or len(cells) > 1:
            raise UserError(f"pairs have one label of 0 and 1, got {rule} for {[*cells]}")
        rule = LabelRule(task="multi-label")
    labels = read_labels(cells, rule, table.where)
    found, lookup = _graphs_of(folder, tables, label, undirected)
    columns = replace(found.columns, split=read_split(tables.get("graphs")))
    if level == "graph":
        columns.graphs["y"] = labels.values
    elif level == "node":
        columns.nodes["y"] = labels.values[lookup.order]
    else:
        columns.pairs[LINKS] = _lay_pairs(table, lookup, labels.values[:, 0])
    if "split" in tables["nodes"].names:
        has_split = columns.split is not None
        columns.nodes[NODE_SPLIT] = _node_split(tables["nodes"], level, has_split)[lookup.order]
    names = () if level == "link" else labels.names
    return replace(found, columns=columns).labelled(task_of(level, labels), names)


def read_folder_unlabelled(folder: Path, label: tuple[str, ...], undirected: bool) -> CustomGraphs:
    """Read graphs to predict, and pairs to score; target columns may be missing."""
    tables = _read_tables(folder)
    found, lookup = _graphs_of(folder, tables, label, undirected)
    if "pairs" in tables:
        found.columns.pairs[LINKS] = _lay_pairs(tables["pairs"], lookup)
    return found


def _read_tables(folder: Path) -> dict[str, CsvTable]:
    import pandas as pd

    if not folder.is_dir():
        raise UserError(f"folder must be a folder, got {str(folder)!r}")
    files = {name: table_in(folder, name) for name in TABLES}
    tables = {name: read_csv(file) for name, file in files.items() if file}
    if "edges" not in tables:
        raise UserError(f"{folder}/edges.csv must be there, got no such file")
    if "graphs" not in tables and not any("graph" in each.names for each in tables.values()):
        # files of a single graph need not name it
        for name, each in tables.items():
            tables[name] = replace(each, frame=each.frame.assign(graph="0"))
    if "nodes" not in tables:
        # the nodes are the ends of the edges
        edges = tables["edges"]
        rows = zip(*(edges.filled(name) for name in ("graph", "source", "target")), strict=True)
        ends = [[graph, end] for graph, *pair in rows for end in pair]
        frame = pd.DataFrame(ends, columns=["graph", "node"], dtype=object).drop_duplicates()
        tables["nodes"] = CsvTable(edges.path, frame.reset_index(drop=True), "node")
    return tables


def _find_level(
    folder: Path, tables: dict[str, CsvTable], name: str, may_hold: list[CsvTable]
) -> Level:
    """Level of the file that has the first target column."""
    found: list[Level] = [
        level
        for level, table in LEVEL_TABLES.items()
        if table in tables and name in tables[table].names
    ]
    if not found:
        listed = ", ".join(table.path.name for table in may_hold)
        raise UserError(
            f"{folder}: {TARGET} must be a column of {listed}, got {name!r}; "
            f"{_candidates(may_hold)}"
        )
    if len(found) > 1:
        files = [f"{LEVEL_TABLES[level]}.csv" for level in found]
        raise UserError(f"{folder}: column {name!r} is in {files}; level must say which is meant")
    return found[0]


def _graphs_of(
    folder: Path, tables: dict[str, CsvTable], label: tuple[str, ...], undirected: bool
) -> tuple[CustomGraphs, NodeIndex]:
    """Make the columns of all graphs, without labels and splits."""
    nodes, edges = tables["nodes"], tables["edges"]
    lookup = _list_nodes(nodes, tables.get("graphs"))
    graph, index = lookup.pairs(edges)
    features = {
        table: [name for name in tables[table].names if name not in {*keys, *label}]
        for table, keys in KEYS_OF.items()
    }
    attributes = edges.numbers(features["edges"])
    if undirected:
        # the reverse of a self-loop is the self-loop
        back = (index[0] != index[1]).nonzero().flatten()
        graph = torch.cat([graph, graph[back]])
        index = torch.cat([index, index.flip(0)[:, back]], dim=1)
        attributes = torch.cat([attributes, attributes[back]])
    order = graph.argsort(stable=True)
    x = nodes.numbers(features["nodes"])[lookup.order]
    columns = GraphColumns(
        node_ptr=lookup.node_ptr,
        edge_ptr=boundaries(torch.bincount(graph, minlength=len(lookup.graphs))),
        edge_index=index[:, order],
        # a model needs some feature; without any, all nodes look alike
        nodes={"x": x if x.shape[1] else torch.ones(len(x), 1)},
        edges={"edge_attr": attributes[order]} if attributes.shape[1] else {},
        source=f"read from {folder.name}",
    )
    own = nodes.cells("node")
    return CustomGraphs(
        columns=columns,
        features=numbers_of(columns),
        feature_names=tuple(f"{table}/{name}" for table in features for name in features[table]),
        graph_names=tuple(lookup.graphs),
        node_names=tuple(own[row] for row in lookup.order.tolist()),
    ), lookup


def _lay_pairs(
    pairs: CsvTable, lookup: NodeIndex, answers: Float[Tensor, " rows"] | None = None
) -> Pairs:
    """Sort the rows of `pairs.csv` by graph, with their labels if there are any."""
    graph, index = lookup.pairs(pairs)
    order = graph.argsort(stable=True)
    ptr = boundaries(torch.bincount(graph, minlength=len(lookup.graphs)))
    columns = {} if answers is None else {"edge_label": answers[order]}
    return Pairs(ptr, index[:, order], columns)


def _node_split(nodes: CsvTable, level: Level, has_split: bool) -> Int[Tensor, " rows"]:
    """Split of each row of `nodes.csv`; none for an empty cell."""
    if level != "node" or has_split:
        why = f"level={level!r}" if level != "node" else "graphs that graphs.csv splits"
        raise UserError(f"{nodes.path}, line 1: column 'split' must be left out for {why}")
    found = split_of_words(nodes.cells("split"), nodes.where, empty=NO_SPLIT)
    if missing := [name for name, number in SPLITS.items() if not bool((found == number).any())]:
        raise UserError(f"{nodes.path}: split must name a node for {missing[0]}, got none")
    return found


def read_split(table: CsvTable | None) -> Int[Tensor, " graphs"] | None:
    """Split of each row from the column `split`; None if there is no such column."""
    if table is None or "split" not in table.names:
        return None
    return split_of_words(table.filled("split"), table.where)

"""Names of graphs and nodes as a user writes them -> numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.own.csv_table import CsvTable
from graphmamba.data.tables import boundaries
from graphmamba.errors import UserError


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


def list_graphs(graphs: CsvTable | None, nodes: CsvTable) -> dict[str, int]:
    """Number the graphs in the order of `graphs.csv`, or of their first nodes."""
    if graphs is None:
        return {name: place for place, name in enumerate(dict.fromkeys(nodes.filled("graph")))}
    names = graphs.filled("graph")
    _check_different(graphs, "graph", names, names)
    return {name: place for place, name in enumerate(names)}


def list_nodes(nodes: CsvTable, graph_number: dict[str, int], graphs: CsvTable | None) -> Roster:
    """Number the nodes of each graph in the order of `nodes.csv`."""
    names, own = nodes.filled("graph"), nodes.filled("node")
    if not names:
        raise UserError(f"{nodes.path} must list a node, got none")
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

"""`GraphStore`: all graphs of a data set as columns end to end, from which batches are made."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.checks import check_choice
from graphmamba.data.batch import make_batch
from graphmamba.data.edges import source_order, target_order
from graphmamba.data.from_pyg import Graphs, columns_of
from graphmamba.data.gather import Gather, make_gather
from graphmamba.data.parallel import Span, for_each_span
from graphmamba.data.splits import SPLITS, Split
from graphmamba.data.tables import (
    BY_SOURCE,
    HIDDEN,
    LINKS,
    NODE_SPLIT,
    ORIGIN,
    PAIR_SPLIT,
    Boundaries,
    GraphColumns,
    Pairs,
    Table,
    is_pairs,
    owner_of,
)
from graphmamba.errors import UserError
from graphmamba.ops.checks import check_rows

PAIRS = "pairs."
RESERVED = frozenset({"batch", "edge_index", "graph_key", "num_nodes", "ptr", *HIDDEN})
"""Names that are reserved for columns of a store or batch."""


class GraphStore:
    """Graphs of a data set, on the CPU or resident on a GPU.

    Within each graph edges are sorted by target, so that messages to a node are consecutive rows.
    Integers are stored in the narrowest type and returned in their original one.

    Args:
        columns: The graphs. Float columns are not copied: changing them later changes the store.

    Example:
        >>> graph = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> store = GraphStore.from_pyg([graph, graph])
        >>> store.batch(torch.tensor([1, 0])).ptr
        tensor([0, 3, 6])
    """

    tables: dict[str, Table]
    """Tables by kind of row: `nodes`, `edges`, `graphs`, `pairs.NAME_OF_THE_INDEX`."""
    split: Int[Tensor, " graphs"] | None
    """Split of each graph: 0 training, 1 validation, 2 test."""
    source: str
    """Description of the source of the graphs."""
    _sent_to: torch.device | None = None
    """Device of the batches, if not that of the columns."""
    content: str | None = None
    """Hash of the columns of a store opened from disk; None otherwise."""

    def __init__(self, columns: GraphColumns) -> None:
        check_graphs(columns)
        node_ptr, edge_ptr = columns.node_ptr, columns.edge_ptr
        edges = {"edge_index": columns.edge_index, **columns.edges}
        place = target_order(columns.edge_index, node_ptr, edge_ptr)
        if place is not None:
            edges = {name: _select(name, values, place) for name, values in edges.items()}
            edges[ORIGIN] = place - edge_ptr[owner_of(edge_ptr)]
        edges[BY_SOURCE] = source_order(edges["edge_index"], node_ptr, edge_ptr)
        self.split = None if columns.split is None else columns.split.clone()
        self.source = columns.source
        self.tables = {
            "nodes": Table.of(node_ptr, columns.nodes),
            "edges": Table.of(edge_ptr, edges),
            "graphs": Table.of(torch.arange(len(node_ptr)), columns.graphs),
            **_pair_tables(columns.pairs),
        }

    @classmethod
    def from_pyg(
        cls, graphs: Graphs, split: Split | None = None, exclude: Collection[str] = ()
    ) -> "GraphStore":
        """Make a store from PyG graphs: a list, a dataset or batches.

        Args:
            graphs: Graphs with the same columns.
            split: Split of each graph (0 training, 1 validation, 2 test), or the graphs of `train`,
                `validation` and `test` by their places in the list.
            exclude: Columns to leave out, such as names, which are not tensors.
        """
        return cls(columns_of(graphs, split, exclude))

    @classmethod
    def from_tables(
        cls, tables: dict[str, Table], split: Int[Tensor, " graphs"] | None, source: str
    ) -> "GraphStore":
        """Make a store from the tables of another one, without sorting or checks."""
        store = cls.__new__(cls)
        store.tables, store.split, store.source = tables, split, source
        return store

    def __getstate__(self) -> dict[str, object]:
        # A gather knows columns by their addresses, and those of a copy are others.
        return {name: each for name, each in vars(self).items() if name != "_gather"}

    def __len__(self) -> int:
        return len(self.tables["nodes"].ptr) - 1

    def __getitem__(self, place: int) -> Data:
        """Return one graph as a PyG `Data`, its edges in the original order."""
        number = range(len(self))[place]
        batch = self.batch(torch.tensor([number]))
        graph = Data()
        for table in self.tables.values():
            for name in table.columns.keys() - HIDDEN:
                graph[name] = batch[name]
        edges = self.tables["edges"]
        if ORIGIN in edges.columns:
            begin, end = edges.ptr[number : number + 2].tolist()
            back = edges.columns[ORIGIN].values[begin:end].argsort()
            for name in edges.columns.keys() - HIDDEN:
                graph[name] = _select(name, graph[name], back)
        if not self.tables["nodes"].columns:
            graph.num_nodes = batch.num_nodes
        return graph

    @property
    def device(self) -> torch.device:
        """Device of the batches."""
        return self._sent_to or self._home

    @property
    def _home(self) -> torch.device:
        """Device of the columns."""
        return self.tables["edges"].columns["edge_index"].values.device

    @property
    def is_streamed(self) -> bool:
        """Whether batches are copied to another device than that of the columns."""
        return self.device != self._home

    @property
    def scored(self) -> "GraphStore":
        """The store to evaluate and predict."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        tables = self.tables.values()
        return sum(each.values.nbytes for table in tables for each in table.columns.values())

    def to(self, device: torch.device | str) -> "GraphStore":
        """Return the store with its columns on a device."""
        tables = {name: table.to(torch.device(device)) for name, table in self.tables.items()}
        return GraphStore.from_tables(tables, self.split, self.source)

    def streamed(self, device: torch.device | str) -> "GraphStore":
        """Return the store with its columns where they are and its batches on a device."""
        store = GraphStore.from_tables(self.tables, self.split, self.source)
        store._sent_to = torch.device(device)
        return store

    def item_ptr(self, kind: str) -> Int[Tensor, " boundaries"]:
        """First row of each graph in a table, and the number of rows."""
        return torch.from_numpy(self.tables[kind].ptr)

    def split_ids(self, name: str) -> Int[Tensor, " graphs"]:
        """Return the graphs of `train`, `validation` or `test`.

        If nodes or pairs are split, these are the graphs with any of the split.
        """
        check_choice("name", name, tuple(SPLITS))
        if (found := self._row_split()) is not None:
            table, rows = found
            owner = owner_of(torch.from_numpy(table.ptr)).to(rows.device)
            return owner[rows == SPLITS[name]].unique().cpu()
        if self.split is None:
            raise UserError(f"split must be given for the split '{name}', got None")
        return (self.split == SPLITS[name]).nonzero().squeeze(1)

    def split_size(self, name: str) -> int:
        """Number of graphs of a split; or of nodes or pairs if these are split."""
        found = self._row_split()
        return len(self.split_ids(name)) if found is None else int((found[1] == SPLITS[name]).sum())

    @property
    def is_transductive(self) -> bool:
        """Whether nodes or pairs are split, so that training, validation and test share graphs."""
        return self._row_split() is not None

    def _row_split(self) -> tuple[Table, Int[Tensor, " rows"]] | None:
        for kind, name in (("nodes", NODE_SPLIT), (PAIRS + LINKS, PAIR_SPLIT)):
            table = self.tables.get(kind)
            if table is not None and name in table.columns:
                return table, table.given(name)
        return None

    def batch(self, ids: Int[Tensor, " graphs"], by_source: bool = False) -> Batch:
        """Return graphs as one PyG batch.

        Its `graph_key` holds the indices of the graphs, on which random orders depend; its edges
        are sorted by target.

        Args:
            ids: Indices of the graphs, preferably on the CPU, to avoid waiting for the GPU.
            by_source: Whether to add `source_order`, the edges in the order of their sources.
        """
        check_rows("ids", ids, ("graphs",), is_integer=True)
        batch = make_batch(self._gather, ids.numpy(force=True).astype(np.int64), by_source)
        return batch.to(self.device) if self.is_streamed else batch

    @cached_property
    def _gather(self) -> Gather:
        return make_gather(self.tables, self._home)

    def columns(self) -> GraphColumns:
        """Return the columns, edges in the original order."""
        given = {
            kind: {name: table.given(name) for name in table.columns if name != BY_SOURCE}
            for kind, table in self.tables.items()
        }
        ptrs = {kind: torch.from_numpy(table.ptr) for kind, table in self.tables.items()}
        edges = given["edges"]
        origin = edges.pop(ORIGIN, None)
        if origin is not None:
            before = ptrs["edges"][owner_of(ptrs["edges"])].to(self._home)
            place = origin + before
            back = torch.empty_like(place)
            back[place] = torch.arange(len(place), device=self._home)
            edges = {name: _select(name, values, back) for name, values in edges.items()}
        pairs = {}
        for kind in self.tables:
            if kind.startswith(PAIRS):
                index = given[kind].pop(kind.removeprefix(PAIRS))
                pairs[kind.removeprefix(PAIRS)] = Pairs(ptrs[kind], index, given[kind])
        return GraphColumns(
            node_ptr=ptrs["nodes"],
            edge_ptr=ptrs["edges"],
            edge_index=edges.pop("edge_index"),
            nodes=given["nodes"],
            edges=edges,
            graphs=given["graphs"],
            pairs=pairs,
            split=self.split,
            source=self.source,
        )

    def with_columns(
        self,
        nodes: Mapping[str, Tensor] | None = None,
        graphs: Mapping[str, Tensor] | None = None,
        pairs: Mapping[str, Pairs] | None = None,
    ) -> "GraphStore":
        """Return the store with added or replaced columns.

        Both stores share memory, and given columns are not copied.
        """
        nodes, graphs, pairs = dict(nodes or {}), dict(graphs or {}), dict(pairs or {})
        ptr = torch.from_numpy(self.tables["nodes"].ptr)
        no_edges = torch.empty(2, 0, dtype=torch.int64)
        check_graphs(GraphColumns(ptr, torch.zeros_like(ptr), no_edges, nodes, {}, graphs, pairs))
        tables = {**self.tables, **_pair_tables(pairs)}
        for kind, columns in {"nodes": nodes, "graphs": graphs}.items():
            made = Table.of(torch.from_numpy(tables[kind].ptr), columns).columns
            tables[kind] = replace(tables[kind], columns={**tables[kind].columns, **made})
        names = Counter(name for table in tables.values() for name in table.columns)
        if twice := [name for name, times in names.items() if times > 1]:
            raise UserError(f"a column must not have two kinds of rows, got {twice} again")
        return GraphStore.from_tables(tables, self.split, self.source).to(self._home)


def _pair_tables(pairs: Mapping[str, Pairs]) -> dict[str, Table]:
    return {
        PAIRS + name: Table.of(each.ptr, {name: each.index, **each.columns})
        for name, each in pairs.items()
    }


def _select(name: str, values: Tensor, places: Int[Tensor, " rows"]) -> Tensor:
    """Take rows; those of pairs stand upright."""
    return values.index_select(1 if is_pairs(name) else 0, places)


def check_graphs(columns: GraphColumns) -> None:
    """Reject columns that do not make up graphs."""
    node_ptr, edge_ptr = columns.node_ptr, columns.edge_ptr
    graphs = node_ptr.shape[0] - 1
    check_ptr("node_ptr", node_ptr, graphs)
    check_ptr("edge_ptr", edge_ptr, graphs)
    check_index("edge_index", columns.edge_index, edge_ptr, node_ptr)
    kinds = {"nodes": node_ptr, "edges": edge_ptr, "graphs": torch.arange(graphs + 1)}
    given = [
        (name, values, int(ptr[-1]), kind)
        for kind, ptr in kinds.items()
        for name, values in getattr(columns, kind).items()
    ]
    for index, each in columns.pairs.items():
        if not is_pairs(index):
            raise UserError(f"the name of pairs must have `index` in it, got '{index}'")
        check_ptr(f"pairs of {index}: ptr", each.ptr, graphs)
        check_index(index, each.index, each.ptr, node_ptr)
        given += [(name, rows, int(each.ptr[-1]), "pairs") for name, rows in each.columns.items()]
    for name, values, rows, kind in given:
        if is_pairs(name):
            raise UserError(f"'{name}' has `index` in its name and must be among the pairs")
        if values.dim() == 0 or values.shape[0] != rows:
            raise UserError(
                f"{name} must have {rows} rows ({kind}), got shape {list(values.shape)}"
            )
    names = Counter([*(name for name, *_ in given), *columns.pairs])
    for name, times in names.items():
        if not name.isidentifier() or name in RESERVED:
            raise UserError(
                f"a column's name must be an identifier and none of {sorted(RESERVED)}, "
                f"got '{name}'"
            )
        if times > 1:
            raise UserError(f"a column must belong to nodes, edges or graphs, got '{name}' twice")
    split = columns.split
    if split is not None and (
        split.shape != (graphs,)
        or split.is_floating_point()
        or not set(split.unique().tolist()) <= set(SPLITS.values())
    ):
        raise UserError(
            f"split must hold 0, 1 or 2 for each of {graphs} graphs, "
            f"got {split.unique().tolist()[:8]} of shape {list(split.shape)}"
        )


def check_ptr(argument: str, ptr: Tensor, graphs: int, rows: int | None = None) -> None:
    """Reject boundaries that are not one more than graphs, or fall, or end at other rows."""
    if ptr.dtype != torch.int64 or ptr.shape != (graphs + 1,) or graphs < 0:
        raise UserError(
            f"{argument} must hold one int64 more than the {max(graphs, 0)} graphs, "
            f"got {ptr.dtype} of shape {list(ptr.shape)}"
        )
    if int(ptr[0]) != 0 or bool((ptr.diff() < 0).any()):
        raise UserError(f"{argument} must start at 0 and never fall, got {ptr.tolist()[:8]}...")
    if rows is not None and int(ptr[-1]) != rows:
        raise UserError(f"{argument} must end at {rows}, got {int(ptr[-1])}")


def check_index(name: str, pairs: Tensor, ptr: Boundaries, node_ptr: Boundaries) -> None:
    """Reject pairs with nodes that their graph does not have."""
    if pairs.shape != (2, int(ptr[-1])) or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise UserError(
            f"{name} must hold integers of shape [2, {int(ptr[-1])}], "
            f"got {pairs.dtype} of shape {list(pairs.shape)}"
        )
    counts = node_ptr.diff()

    def check(span: Span) -> None:
        some, size = pairs[:, span.rows], counts[span.graphs][span.owner]
        wrong = (some < 0) | (some >= size)
        if bool(wrong.any()):
            place = int(wrong.any(dim=0).nonzero()[0])
            graph = span.graphs.start + int(span.owner[place])
            raise UserError(
                f"{name} must hold nodes 0 to {int(size[place]) - 1} in graph {graph}, "
                f"got {some[:, place].tolist()}"
            )

    for_each_span(ptr, check, "Checking edges")

"""`GraphColumns` (graphs end to end) and `Table` (columns with the same rows)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

NARROW = (torch.uint8, torch.int16, torch.int32)  # integer types for storage, the narrowest first
PREFIX = 64  # number of rows checked first, since most columns are not constant
ORIGIN = "edge_origin"  # column with the original position of each edge in its graph
BY_SOURCE = "source_order"  # column with the edges of each graph in the order of their sources
HIDDEN = frozenset({ORIGIN, BY_SOURCE})  # internal columns, left out of graphs and batches
LINKS = "edge_label_index"  # pairs of nodes that are labelled, or to be scored
LABELS = frozenset({"y", "edge_label"})
"""Columns with labels; missing ones are NaN, or -1 for classes."""
DESCRIPTORS = "graph_attr"  # column with descriptors of each graph
NODE_SPLIT, PAIR_SPLIT = "node_split", "pair_split"
"""Columns with the split of each node or pair, where training, validation and test share graphs."""
NO_SPLIT = 3  # value for a row in none of the three
Numbers = Int[np.ndarray, " numbers"]
Boundaries = Int[Tensor, " boundaries"]


@dataclass(frozen=True)
class Pairs:
    """A further set of node pairs of all graphs, beside the edges."""

    ptr: Int[Tensor, " boundaries"]  # first pair of each graph, and the number of pairs
    index: Int[Tensor, "2 pairs"]
    """Both nodes of each pair, counted from the first node of their own graph."""
    columns: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each pair: `edge_label` where pairs are labelled."""


@dataclass(frozen=True)
class GraphColumns:
    """Graphs end to end; graph `g` has nodes `node_ptr[g]` to `node_ptr[g + 1]`, and so on."""

    node_ptr: Int[Tensor, " boundaries"]
    """First node of each graph, and the number of nodes."""
    edge_ptr: Int[Tensor, " boundaries"]
    """First edge of each graph, and the number of edges."""
    edge_index: Int[Tensor, "2 edges"]
    """Source and target of each directed edge, counted from the first node of its own graph."""
    nodes: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each node: `x`, and `y` where nodes are labelled."""
    edges: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each edge: `edge_attr`."""
    graphs: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each graph: `y` where graphs are labelled."""
    pairs: dict[str, Pairs] = field(default_factory=dict)
    """Further pairs of nodes by the name of their index: `edge_label_index`, `expander_index`."""
    split: Int[Tensor, " graphs"] | None = None
    """Split of each graph: 0 training, 1 validation, 2 test."""
    source: str = ""
    """Description of the source of the graphs."""


def boundaries(counts: Int[Tensor, " graphs"]) -> Int[Tensor, " boundaries"]:
    """Cumulative sums of sizes, beginning with 0."""
    return functional.pad(counts.long().cumsum(0), (1, 0))


def concatenate(parts: Sequence[GraphColumns]) -> GraphColumns:
    """Concatenate data sets with the same columns; further pairs are left out."""

    def joined(kind: str) -> dict[str, Tensor]:
        names = getattr(parts[0], kind)
        return {name: torch.cat([getattr(part, kind)[name] for part in parts]) for name in names}

    splits = [part.split for part in parts if part.split is not None]
    return GraphColumns(
        boundaries(torch.cat([part.node_ptr.diff() for part in parts])),
        boundaries(torch.cat([part.edge_ptr.diff() for part in parts])),
        torch.cat([part.edge_index for part in parts], dim=1).long(),
        joined("nodes"),
        joined("edges"),
        joined("graphs"),
        split=torch.cat(splits) if splits else None,
    )


def is_pairs(name: str) -> bool:
    """Whether a column holds node indices, by the rules of PyG; its shape is then [2, rows]."""
    return "index" in name


def owner_of(ptr: Boundaries) -> Int[Tensor, " rows"]:
    """Graph of each row."""
    return torch.repeat_interleave(ptr.diff(), output_size=int(ptr[-1]))


@dataclass(frozen=True)
class Column:
    """A column of all graphs, in the narrowest type that holds it without loss."""

    values: Tensor  # [rows, ...]; pairs of nodes are [2, rows]
    dtype: torch.dtype  # type in which values are returned
    is_constant: bool = False
    """Whether all rows of a graph are equal, so that one per graph is stored."""

    def to(self, device: torch.device) -> "Column":
        """Move the values."""
        return replace(self, values=self.values.to(device))


@dataclass(frozen=True)
class Table:
    """Columns with the same rows; graph `g` has the rows `ptr[g]` to `ptr[g + 1]`."""

    ptr: Numbers  # on the CPU, wherever the columns are, since it determines shapes
    columns: dict[str, Column]

    @classmethod
    def of(cls, ptr: Boundaries, columns: Mapping[str, Tensor]) -> "Table":
        """Make a table; narrow types make batches fast."""
        made = {name: _pack(name, values, ptr) for name, values in columns.items()}
        return cls(ptr.numpy(), made)

    def given(self, name: str) -> Tensor:
        """Return all rows of a column in their original type."""
        column = self.columns[name]
        if column.is_constant:
            owner = owner_of(torch.from_numpy(self.ptr))
            return column.values.index_select(0, owner.to(column.values.device))
        return column.values.to(column.dtype)

    def to(self, device: torch.device) -> "Table":
        """Move the columns."""
        return replace(self, columns={name: each.to(device) for name, each in self.columns.items()})


def _pack(name: str, values: Tensor, ptr: Boundaries) -> Column:
    if is_pairs(name) or name in HIDDEN:
        return Column(_narrow(values.long()).contiguous(), torch.int64)
    if len(ptr) - 1 < int(ptr[-1]) and _is_constant(values, ptr):
        # A graph without rows has none to keep; what stands in its place is never read.
        first = ptr[:-1].clamp_max(int(ptr[-1]) - 1)
        return Column(values.index_select(0, first), values.dtype, is_constant=True)
    return Column(_narrow(values).contiguous(), values.dtype)


def _is_constant(values: Tensor, ptr: Boundaries) -> bool:
    """Whether all rows of each graph have the same bits: NaN counts as equal, -0 not as 0."""
    rows = values.contiguous().view(values.shape[0], -1).view(torch.uint8)
    first = ptr[:-1][owner_of(ptr)]
    return torch.equal(rows[:PREFIX], rows[first[:PREFIX]]) and torch.equal(rows, rows[first])


def _narrow(values: Tensor) -> Tensor:
    if values.dtype != torch.int64:
        return values
    low, high = (int(end) for end in torch.aminmax(values)) if values.numel() else (0, 0)
    for dtype in NARROW:
        bounds = torch.iinfo(dtype)
        if bounds.min <= low and high <= bounds.max:
            return values.to(dtype)
    return values

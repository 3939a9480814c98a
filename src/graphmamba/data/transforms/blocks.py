"""Graphs of a set taken together in blocks: chosen by size, with their edges."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.tables import GraphColumns


@dataclass(frozen=True)
class Block:
    """Some graphs of a set."""

    graphs: Int[Tensor, " graphs"]
    """Their numbers in the set."""
    size: int
    """Nodes of the largest."""
    nodes: Int[Tensor, " nodes"]
    """The rows of their nodes in the set."""
    place: Int[Tensor, " nodes"]
    """Graph of each node within the block."""
    local: Int[Tensor, " nodes"]
    """Number of each node within its graph."""


def node_counts(columns: GraphColumns) -> Int[Tensor, " graphs"]:
    """Nodes of each graph."""
    return columns.node_ptr.diff()


def global_edges(columns: GraphColumns) -> Int[Tensor, "2 edges"]:
    """Edges with their nodes counted from the first node of the set."""
    starts = columns.node_ptr[:-1].repeat_interleave(columns.edge_ptr.diff())
    return columns.edge_index + starts


def simple_columns(columns: GraphColumns, has_loops: bool = False) -> GraphColumns:
    """The same graphs with each edge once in both directions; no columns, self-loops if asked."""
    edges = global_edges(columns)
    if not has_loops:
        edges = edges[:, edges[0] != edges[1]]
    nodes = int(columns.node_ptr[-1])
    # one number for a pair sorts much faster than rows of two
    keys = torch.cat([edges[0] * nodes + edges[1], edges[1] * nodes + edges[0]]).unique()
    source, target = keys // max(nodes, 1), keys % max(nodes, 1)
    edge_ptr = torch.searchsorted(source, columns.node_ptr)
    starts = columns.node_ptr[:-1].repeat_interleave(edge_ptr.diff())
    return GraphColumns(columns.node_ptr, edge_ptr, torch.stack([source, target]) - starts)


def blocks(
    columns: GraphColumns, entries: int, width: int | None = None, largest: int | None = None
) -> Iterator[Block]:
    """Cut the set into blocks of graphs of similar size, the smallest first.

    Args:
        columns: The set.
        entries: Numbers in memory for one block, where a node takes as many as its graph has nodes.
        width: The most numbers that a node takes; without it graphs of a block are of one size.
        largest: Leave out graphs of more nodes.
    """
    counts = node_counts(columns)
    order = counts.argsort(stable=True)
    order = order[counts[order] > 0]
    if largest is not None:
        order = order[counts[order] <= largest]
    sizes, first = counts[order].tolist(), 0
    while first < len(sizes):
        end, used = first, 0
        while end < len(sizes):
            used += sizes[end] * min(sizes[end], width or sizes[end])
            is_full = used > entries or (width is None and sizes[end] != sizes[first])
            if is_full and end > first:
                break
            end += 1
        yield _block(columns, order[first:end])
        first = end


def edges_of(columns: GraphColumns, block: Block) -> Int[Tensor, "3 edges"]:
    """Graph within the block, source and target within the graph of each edge of the block."""
    starts, ends = columns.edge_ptr[block.graphs], columns.edge_ptr[block.graphs + 1]
    place, rows = _ranges(starts, ends - starts)
    return torch.cat([place[None], columns.edge_index[:, rows]])


def _block(columns: GraphColumns, graphs: Int[Tensor, " graphs"]) -> Block:
    counts = node_counts(columns)[graphs]
    starts = columns.node_ptr[graphs]
    place, nodes = _ranges(starts, counts)
    return Block(graphs, int(counts.max()), nodes, place, nodes - starts[place])


def _ranges(
    starts: Int[Tensor, " ranges"], counts: Int[Tensor, " ranges"]
) -> tuple[Int[Tensor, " rows"], Int[Tensor, " rows"]]:
    """Number of its range and value of each member of the ranges, laid end to end."""
    place = torch.arange(len(counts)).repeat_interleave(counts)
    offset = starts - (counts.cumsum(0) - counts)
    return place, torch.arange(place.shape[0]) + offset[place]

"""Parallel work on graphs: in spans of consecutive graphs, or in blocks of equal size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.tables import Boundaries, GraphColumns, owner_of

Item = TypeVar("Item")
Made = TypeVar("Made")
ROWS = 1 << 19  # rows of one span: what is computed from them stays in the cache of a core


def track(items: Iterable[Item], title: str, total: int | None) -> Iterator[Item]:
    """Iterate with a progress bar, on a terminal only."""
    from rich.console import Console
    from rich.progress import track as draw

    console = Console(stderr=True)
    yield from draw(
        items, description=title, total=total, console=console, disable=not console.is_terminal
    )


def run_all(work: Callable[[Item], Made], items: Sequence[Item], title: str) -> list[Made]:
    """Call `work` once for each item, and list what it returns.

    As many items at once as torch has threads, each on one thread: threads within a small matrix
    gain nothing, and those of NumPy's BLAS would block one another. Results do not depend on
    timing, as long as every item writes its own rows.
    """
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        try:
            return list(track(pool.map(work, items), title, len(items)))
        finally:
            # after an error or Ctrl-C nothing new is begun
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


@dataclass(frozen=True)
class Span:
    """Consecutive graphs and their rows."""

    graphs: slice
    rows: slice
    owner: Int[Tensor, " rows"]  # graph of each row, counted from the first graph of the span


def for_each_span(ptr: Boundaries, work: Callable[[Span], None], title: str) -> None:
    """Call `work` with every span of graphs, in parallel; each must write its own rows."""
    cuts = torch.searchsorted(ptr, torch.arange(0, int(ptr[-1]), ROWS)[1:])
    ends = sorted({0, *cuts.tolist(), len(ptr) - 1})

    def call(place: int) -> None:
        first, last = ends[place : place + 2]
        inside = ptr[first : last + 1]
        rows = slice(int(inside[0]), int(inside[-1]))
        work(Span(slice(first, last), rows, owner_of(inside - inside[0])))

    places = range(len(ends) - 1)
    if len(places) == 1:
        # a pool of threads takes longer to set up than a small set to work on
        call(0)
    else:
        run_all(call, places, title)


@dataclass(frozen=True)
class Block:
    """Some graphs of a set."""

    graphs: Int[Tensor, " graphs"]  # their numbers in the set
    size: int  # nodes of the largest
    nodes: Int[Tensor, " nodes"]  # the rows of their nodes in the set
    place: Int[Tensor, " nodes"]  # graph of each node within the block
    local: Int[Tensor, " nodes"]  # number of each node within its graph


def global_edges(columns: GraphColumns) -> Int[Tensor, "2 edges"]:
    """Edges with their nodes counted from the first node of the set."""
    starts = columns.node_ptr[:-1].repeat_interleave(columns.edge_ptr.diff())
    return columns.edge_index + starts


def simple_columns(columns: GraphColumns, has_loops: bool = False) -> GraphColumns:
    """The graphs as simple undirected ones, without features; optionally with self-loops."""
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
    columns: GraphColumns, entries: int, largest: int, width: int | None = None
) -> tuple[list[Block], list[Block]]:
    """Divide the graphs into blocks of similar size, the smallest first, and those of one each.

    A block has at most `entries` matrix entries. With a `width`, the most numbers that a node
    takes, graphs of a block need not be of one size. Larger graphs than `largest` are a block each.
    """
    counts = columns.node_ptr.diff()
    order = counts.argsort(stable=True)
    order = order[counts[order] > 0]
    small, large = order[counts[order] <= largest], order[counts[order] > largest]

    def block(graphs: Int[Tensor, " graphs"]) -> Block:
        starts = columns.node_ptr[graphs]
        place, nodes = _ranges(starts, counts[graphs])
        return Block(graphs, int(counts[graphs].max()), nodes, place, nodes - starts[place])

    cuts, used = [], 0
    sizes = counts[small].tolist()
    for number, size in enumerate(sizes):
        cost = size * min(size, width or size)
        used += cost
        if number and (used > entries or (width is None and size != sizes[number - 1])):
            cuts.append(number)
            used = cost
    return (
        [block(graphs) for graphs in small.tensor_split(cuts) if len(graphs)],
        [block(graph) for graph in large.split(1) if len(graph)],
    )


def edges_of(columns: GraphColumns, block: Block) -> Int[Tensor, "3 edges"]:
    """Graph within the block, source and target within the graph of each edge of the block."""
    starts, ends = columns.edge_ptr[block.graphs], columns.edge_ptr[block.graphs + 1]
    place, rows = _ranges(starts, ends - starts)
    return torch.cat([place[None], columns.edge_index[:, rows]])


def _ranges(
    starts: Int[Tensor, " ranges"], counts: Int[Tensor, " ranges"]
) -> tuple[Int[Tensor, " rows"], Int[Tensor, " rows"]]:
    """Number of its range and value of each member of the ranges, laid end to end."""
    place = torch.arange(len(counts)).repeat_interleave(counts)
    offset = starts - (counts.cumsum(0) - counts)
    return place, torch.arange(place.shape[0]) + offset[place]

"""The few sizes that batches are padded to, one captured CUDA graph each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count as count_up

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.data.batch import Blocks, blocks_for, descending, do_fit, usual_lengths
from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError

MULTIPLE = 64
"""Rows are a multiple of it, the height of a tile."""
MOST_RUNS = 256
"""Batches of similar size are merged into so many groups before sizes are chosen."""
DRAWN_BATCHES = 256
"""Least number of sampled batches from which sizes are chosen."""


@dataclass(frozen=True)
class StaticSize:
    """Fixed numbers of rows of a batch; those left over belong to the padding graph."""

    graphs: int
    """Slots for graphs, without the padding graph."""
    nodes: int
    """Rows of nodes, at least one of the padding graph."""
    edges: int
    """Rows of edges."""
    pairs: tuple[int, ...] = ()
    """Rows of each further set of pairs, in the order of the store."""
    blocks: Blocks = ()
    """Padded blocks for attention; () for none."""

    def rows(self, kinds: Iterable[str]) -> dict[str, int]:
        """Rows by table of the store."""
        sizes = {"nodes": self.nodes, "edges": self.edges, "graphs": self.graphs + 1}
        others = [kind for kind in kinds if kind not in sizes]
        return sizes | dict(zip(others, self.pairs, strict=True))


@dataclass(frozen=True)
class StaticSizes:
    """Sizes to choose from, ascending; the last one fits any graphs of the data set."""

    sizes: tuple[StaticSize, ...]
    counts: Int[np.ndarray, "graphs tables"]
    """Rows of each graph (nodes, edges, further pairs), on the CPU."""

    @classmethod
    def for_batches(
        cls, store: GraphStore, batches: Iterable[Int[Tensor, " _"]], count: int = 8
    ) -> "StaticSizes":
        """Choose sizes with the least padding for batches like these.

        Args:
            store: The graphs.
            batches: Indices of the graphs of some batches, such as those of an epoch.
            count: Most sizes.
        """
        check_least("count", count, 2)
        counts = np.stack([np.diff(store.tables[kind].ptr) for kind in _kinds(store)], axis=1)
        numbers = [ids.cpu().numpy() for ids in batches]
        slots = max((len(ids) for ids in numbers), default=0)
        check_least("graphs of a batch", slots, 1)
        needed = np.stack([counts[ids].sum(axis=0) for ids in numbers])
        members = np.unique(np.concatenate(numbers))
        largest = np.sort(counts[members], axis=0)[-slots:]
        usual, most = _blocks(counts[:, 0], numbers, largest[:, 0], slots)
        found = [_as_size(slots, rows, usual) for rows in _divide(needed, count - 1)]
        found.append(_as_size(slots, largest.sum(axis=0), most))
        return cls(tuple(dict.fromkeys(found)), counts)

    @classmethod
    def for_graphs(
        cls, store: GraphStore, ids: Int[Tensor, " _"], size: int, count: int = 8
    ) -> "StaticSizes":
        """Choose sizes for shuffled batches of `size` graphs, from sampled batches."""
        sampler, drawn = BatchSampler(ids, size), []
        for epoch in count_up():
            sampler.set_epoch(epoch)
            drawn += list(sampler)
            if len(drawn) >= DRAWN_BATCHES:
                break
        return cls.for_batches(store, drawn, count)

    def choose(self, ids: Int[Tensor, " _"]) -> StaticSize:
        """Return the smallest size that fits these graphs; does not use the GPU.

        Args:
            ids: Indices of the graphs, on the CPU; negative for empty slots.
        """
        numbers = ids.numpy()
        counts = self.counts[numbers[numbers >= 0]]
        needed, largest = counts.sum(axis=0), self.sizes[-1]
        for size in self.sizes:
            room = np.array([size.nodes - 1, size.edges, *size.pairs])
            if len(numbers) > size.graphs or (needed > room).any():
                continue
            for blocks in (size.blocks, largest.blocks):
                if do_fit(blocks, counts[:, 0]):
                    return size if blocks is size.blocks else replace(size, blocks=blocks)
        raise UserError(
            f"ids must fit into {largest}, got {len(numbers)} graphs with {needed.tolist()} rows, "
            f"at most {counts[:, 0].max(initial=0)} nodes in one"
        )

    def padded(self, ids: Int[Tensor, " _"]) -> Int[Tensor, " slots"]:
        """Pad with -1 for empty slots."""
        slots = self.sizes[0].graphs
        if len(ids) > slots:
            raise UserError(f"ids must hold at most {slots} graphs, got {len(ids)}")
        return torch.nn.functional.pad(ids, (0, slots - len(ids)), value=-1)


def _kinds(store: GraphStore) -> list[str]:
    return [kind for kind in store.tables if kind != "graphs"]


def _blocks(
    nodes: Int[np.ndarray, " graphs"],
    batches: Sequence[Int[np.ndarray, " _"]],
    largest: Int[np.ndarray, " _"],
    slots: int,
) -> tuple[Blocks, Blocks]:
    """Blocks for nearly all batches, and for any."""
    most = descending(largest, slots)
    seen = np.stack([descending(nodes[ids], slots) for ids in batches])
    return blocks_for(usual_lengths(seen, most)), blocks_for(most)


def _as_size(graphs: int, rows: Int[np.ndarray, " tables"], blocks: Blocks) -> StaticSize:
    # One node for the padding graph.
    nodes, edges, *pairs = (
        -(-int(value) // MULTIPLE) * MULTIPLE for value in rows + (np.arange(len(rows)) == 0)
    )
    return StaticSize(graphs, nodes, edges, tuple(pairs), blocks)


def _divide(
    needed: Int[np.ndarray, "batches tables"], count: int
) -> list[Int[np.ndarray, " tables"]]:
    """Choose `count` sizes at the least cost; returns them in ascending order.

    Batches are sorted by load (nodes and edges with equal weight) and divided into consecutive
    groups, each as large as its largest member in every kind of row. The division is found by
    dynamic programming over the number of groups.
    """
    average = np.maximum(needed.mean(axis=0), 1)
    ordered = needed[np.argsort((needed / average).sum(axis=1), kind="stable")]
    runs = np.array_split(ordered, min(len(ordered), MOST_RUNS))
    tops = np.stack([run.max(axis=0) for run in runs])
    # cost[i, j]: of all batches of the runs i to j, if they are made as large as the largest.
    cost = np.full((len(runs), len(runs)), np.inf)
    weights = np.array([len(run) for run in runs])
    for first in range(len(runs)):
        largest = np.maximum.accumulate(tops[first:])
        cost[first, first:] = (largest / average).sum(axis=1) * weights[first:].cumsum()
    best, cuts = cost[0], []
    for _ in range(min(count, len(runs)) - 1):
        # Runs up to j, the last group of them beginning with run i.
        total = best[:-1, None] + cost[1:]
        cuts.append(total.argmin(axis=0))
        best = np.minimum(best, total.min(axis=0))
    found, end = [], len(runs)
    for cut in reversed(cuts):
        begin = int(cut[end - 1]) + 1
        if begin >= end:
            continue
        found.append(tops[begin:end].max(axis=0))
        end = begin
    found.append(tops[:end].max(axis=0))
    return found[::-1]

"""Neighbour sampling: batches of nodes or pairs of one graph that does not fit into memory."""

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Batch

from graphmamba.checks import check_choice, check_least
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import (
    BY_SOURCE,
    HIDDEN,
    LINKS,
    NODE_SPLIT,
    PAIR_SPLIT,
    Column,
    is_pairs,
)
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits

HOPS = 2
"""Hops; each samples half as many neighbours as the one before."""
SEEDS = "seed_rows"
"""Column of a batch with the rows of the requested (seed) nodes."""


class NeighbourStore(GraphStore):
    """One graph as a store of nodes: a batch is the subgraph of seed nodes and sampled neighbours.

    At most `neighbours` neighbours of each seed node are sampled, half as many of each of these,
    and all edges among the nodes found are included. The sample depends on the seed nodes only, so
    a batch is the same whenever it is made. With labelled pairs, the items are pairs: both nodes of
    each are seed nodes, and as many random nodes, from which negative pairs are made.

    Args:
        store: One graph, on the CPU.
        neighbours: Most sampled neighbours of a seed node.
        device: Device of the batches.
        is_scored_whole: Whether the whole graph fits into memory for evaluation.
    """

    def __init__(
        self,
        store: GraphStore,
        neighbours: int,
        device: torch.device | str = "cpu",
        *,
        is_scored_whole: bool = False,
    ) -> None:
        check_least("neighbours", neighbours, 1)
        if len(store) != 1:
            raise UserError(
                f"neighbours are drawn to learn one graph, got {len(store)} graphs; "
                "train.neighbours must be 0"
            )
        self.tables, self.split, self.source = store.tables, store.split, store.source
        self._sent_to = torch.device(device)
        self._items = PAIRS + LINKS if PAIRS + LINKS in store.tables else "nodes"
        self._whole = store.streamed(device) if is_scored_whole else None
        self.fanouts = np.array([max(neighbours >> hop, 1) for hop in range(HOPS)])

    def __len__(self) -> int:
        return int(self.tables[self._items].ptr[-1])

    @property
    def scored(self) -> GraphStore:
        """The store to evaluate: the whole graph, or this store if it does not fit."""
        return self._whole or self

    def split_ids(self, name: str) -> Int[Tensor, " items"]:
        """Return the nodes or pairs of `train`, `validation` or `test`."""
        check_choice("name", name, tuple(SPLITS))
        column = NODE_SPLIT if self._items == "nodes" else PAIR_SPLIT
        return (self.tables[self._items].given(column) == SPLITS[name]).nonzero().squeeze(1)

    def item_ptr(self, kind: str) -> Int[Tensor, " boundaries"]:
        """Each node or pair is an item."""
        return torch.arange(len(self) + 1) if kind == self._items else super().item_ptr(kind)

    def to(self, device: torch.device | str) -> "NeighbourStore":
        """Return the store with its batches on a device; its columns stay."""
        return NeighbourStore(
            GraphStore.from_tables(self.tables, self.split, self.source),
            int(self.fanouts[0]),
            device,
            is_scored_whole=self._whole is not None,
        )

    @cached_property
    def _begin(self) -> tuple[Int[np.ndarray, " boundaries"], Int[np.ndarray, " edges"]]:
        """First edge of each node, and the source of each edge."""
        source, target = self.tables["edges"].columns["edge_index"].values.long()
        counts = torch.bincount(target, minlength=int(self.tables["nodes"].ptr[-1]))
        return np.append(0, counts.cumsum(0).numpy()), source.contiguous().numpy()

    def batch(self, ids: Int[Tensor, " items"], by_source: bool = False) -> Batch:
        """Return the subgraph of seed nodes and sampled neighbours, as one PyG batch.

        Args:
            ids: Indices of seed nodes, whose rows are `seed_rows` of the batch; or of labelled
                pairs.
            by_source: Whether to add `source_order`.
        """
        from graphmamba.data.neighbor_sampling_kernels import induce, sample

        ids = ids.cpu().long()
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self):
            raise UserError(f"ids must hold items 0 to {len(self) - 1}, got others")
        # a sum does not depend on the order of the items
        seed = int(draw_bits(torch.tensor(len(ids)), ids).sum() & (2**62 - 1))
        asked, pairs = ids, None
        if self._items != "nodes":
            pairs = self.tables[self._items].columns[LINKS].values[:, ids].long()
            others = draw_bits(torch.tensor(seed), torch.arange(len(ids))).remainder(
                int(self.tables["nodes"].ptr[-1])
            )
            asked = torch.cat([pairs.flatten(), others]).unique()
        nodes = sample(*self._begin, asked.numpy(), self.fanouts, seed)
        edges = torch.from_numpy(induce(*self._begin, nodes))
        kept = torch.from_numpy(nodes)
        columns = {
            "batch": torch.zeros(len(nodes), dtype=torch.int64),
            "ptr": torch.tensor([0, len(nodes)]),
            "graph_key": torch.zeros(1, dtype=torch.int64),
            "edge_index": edges[1:],
        }
        if pairs is None:
            columns[SEEDS] = torch.searchsorted(kept, ids)
        else:
            columns[LINKS] = torch.searchsorted(kept, pairs)
            for name in ("edge_label", PAIR_SPLIT):
                columns[name] = _rows_of(self.tables[self._items].columns[name], ids)
        for kind, rows in (("nodes", kept), ("edges", edges[0])):
            for name, column in self.tables[kind].columns.items():
                if name not in HIDDEN and not is_pairs(name):
                    columns[name] = _rows_of(column, rows)
        if by_source:
            columns[BY_SOURCE] = edges[1].argsort(stable=True)
        return Batch(**columns).to(self.device)


def _rows_of(column: Column, rows: Int[Tensor, " rows"]) -> Tensor:
    if column.is_constant:
        return column.values.expand(len(rows), *column.values.shape[1:]).contiguous()
    return column.values[rows].to(column.dtype)

"""A batch of graphs: PyG's `Batch`, and the `Topology` that layers read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.data.gather import Gather
from graphmamba.data.tables import DESCRIPTORS, Numbers
from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import EdgeLayout, lay_out_edges

T = TypeVar("T")
Blocks = tuple[tuple[int, int], ...]
"""Padded blocks: numbers of graphs and of nodes per graph, the largest graphs first."""

NODES_MULTIPLE = 16
"""Nodes per graph of a block are a multiple of it: attention kernels need aligned masks."""
MARGIN = 16  # slack on the size of the graph at each position of the sorted batch
SHARES = 8, 4, 2  # blocks may begin at 1 / 8, 1 / 4 and 1 / 2 of the sorted graphs
WORTHWHILE = 0.85  # largest ratio of the sizes of neighbouring blocks; closer ones are merged


def blocks_for(lengths: Int[np.ndarray, " places"]) -> Blocks:
    """Choose padded blocks by the largest size of the graph at each position, descending.

    The cost of a block is quadratic in its nodes per graph, plus a launch.
    """
    places = len(lengths)
    begins = sorted({0, *(places // share for share in SHARES)})
    found: list[tuple[int, int]] = []
    for begin, end in pairwise([*begins, places]):
        graphs = end - begin
        nodes = max(1, -(-int(lengths[begin]) // NODES_MULTIPLE)) * NODES_MULTIPLE
        if found and nodes > WORTHWHILE * found[-1][1]:
            before, nodes = found.pop()
            graphs += before
        found.append((graphs, nodes))
    return tuple(found)


def usual_lengths(
    seen: Int[np.ndarray, "batches places"], most: Int[np.ndarray, " places"]
) -> Int[np.ndarray, " places"]:
    """Sizes that suffice for nearly all batches, by those of some, and of the largest graphs."""
    return np.minimum(seen.max(axis=0) + MARGIN, most)


def descending(nodes: Int[np.ndarray, " graphs"], places: int) -> Int[np.ndarray, " places"]:
    """Sort the sizes of graphs, descending, empty slots last."""
    ordered = np.zeros(max(places, len(nodes)), nodes.dtype)
    ordered[: len(nodes)] = np.sort(nodes)[::-1]
    return ordered


def do_fit(blocks: Blocks, nodes: Int[np.ndarray, " graphs"]) -> bool:
    """Whether graphs of these sizes fit into the blocks; without blocks they do."""
    if not blocks:
        return True
    places = sum(graphs for graphs, _ in blocks)
    ordered, begin = descending(nodes, places), 0
    for graphs, most in blocks:
        if ordered[begin] > most:
            return False
        begin += graphs
    return len(ordered) == places


COLUMNS = (
    "graph_key",
    DESCRIPTORS,
    "centrality",
    "random_walk",
    "cluster",
    "laplacian_vectors",
    "laplacian_values",
    "expander_index",
    "source_order",
    "source_ptr",
    "target_ptr",
)
"""Columns that `topology_of` takes from a batch; layers also read `gate_encoding`."""


@dataclass(frozen=True)
class Topology:
    """The graphs of a batch, end to end: what a layer reads besides embeddings."""

    edge_index: Int[Tensor, "2 edges"]
    """Sources, then targets; messages flow from source to target."""
    batch: Int[Tensor, " nodes"]
    """Graph of each node, ascending."""
    num_graphs: int
    """Number of graphs, including those without nodes."""
    seed: Int[Tensor, ""] | None = None
    """Seed of this forward pass, for random orders (see `ordering.NoiseSeed`)."""
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """What is known of graphs, nodes or edges besides.

    =================== ======================= ===================================================
    name                shape                   what
    =================== ======================= ===================================================
    `graph_key`         [graphs]                what names a graph for the random numbers, such as
                                                its place in the data set; 0 if absent
    `graph_attr`        [graphs, columns]       numbers of each graph, where its head reads any
    `centrality`        [nodes]                 eigenvector centrality, for orders
    `random_walk`       [nodes, steps]          return probabilities of random walks, for orders
    `cluster`           [nodes]                 Louvain community in the graph, for orders
    `laplacian_vectors` [nodes, eigenvectors]   of each graph, for orders and spectral filters
    `laplacian_values`  [nodes, eigenvectors]   their eigenvalues, given to each node
    `expander_index`    [2, expanders]          edges of a random regular graph (Exphormer)
    `gate_encoding`     [nodes, channels]       stable positions that modulate GatedGCN's gates
    `source_order`      [edges]                 edges in the order of their sources, where they
                                                themselves lie in that of their targets
    `source_ptr`        [nodes + 1]             first edge of each node in `source_order`
    `target_ptr`        [nodes + 1]             first edge of each node among the edges as they lie
    =================== ======================= ===================================================
    """
    ptr: Int[Tensor, " boundaries"] | None = None
    """First node of each graph, and the number of nodes; computed from `batch` if None."""
    num_real_nodes: Int[Tensor, ""] | None = None
    """Number of nodes without those of the padding graph of a static batch; None for all."""
    num_real_edges: Int[Tensor, ""] | None = None
    """Number of edges without those of the padding graph."""
    dense_blocks: Blocks | None = None
    """Padded blocks for all graphs except the padding graph; computed from the batch if None."""
    edge_layout: EdgeLayout | None = None
    """Edges sorted by target and by source; `Backbone` makes it once for all layers."""
    node_order: Any = None
    """Node order for this layer, an `ordering.NodeOrder`; computed by the layer if None."""
    wants_edges: bool = True
    """Whether the edge embeddings that a layer returns are used; if not, it may return None."""
    _dropout_seed: Int[Tensor, ""] | None = None
    _cache: dict[Any, Any] | None = field(default=None, repr=False)

    @property
    def dropout_seed(self) -> Int[Tensor, ""] | None:
        """Seed of dropout in this pass."""
        return self.seed if self._dropout_seed is None else self._dropout_seed

    def with_dropout_seed(self, seed: Int[Tensor, ""] | None) -> "Topology":
        """Return the topology with a seed of its own for dropout, unless None."""
        return self if seed is None else replace(self, _dropout_seed=seed)

    def with_cache(self) -> "Topology":
        """Return the topology with a cache that its copies share."""
        return replace(self, _cache={})

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """Return `make(self)`, computed once for all layers of a pass.

        Compiled layers do not use the cache, which would make later layers recompile.
        """
        is_compiled = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
        if self._cache is None or is_compiled:
            return make()
        if key not in self._cache:
            self._cache[key] = make()
        return cast("T", self._cache[key])

    def starts(self) -> Int[Tensor, " boundaries"]:
        """Return the first node of each graph, and the number of nodes."""
        if self.ptr is not None:
            return self.ptr
        every = torch.arange(self.num_graphs + 1, device=self.batch.device)
        return torch.searchsorted(self.batch, every)

    def lay_out(self) -> EdgeLayout:
        """Return the edge layout; computed if it is missing."""
        if self.edge_layout is not None:
            return self.edge_layout
        order, source_ptr, target_ptr = map(
            self.columns.get, ("source_order", "source_ptr", "target_ptr")
        )
        if order is not None and source_ptr is not None and target_ptr is not None:
            return EdgeLayout(self.edge_index, target_ptr, source_ptr, order)
        return lay_out_edges(self.edge_index, self.batch.shape[0], order)


def column(graphs: Data, name: str) -> Tensor | None:
    """Return a column, or None if the batch has none of that name."""
    return getattr(graphs, name, None)


def required(graphs: Data, name: str, why: str) -> Tensor:
    """Return a column; raises if it is missing."""
    found = column(graphs, name)
    if found is None:
        raise UserError(f"graphs.{name} must be given {why}, got None")
    return found


def count_up_to(last: Int[Tensor, ""]) -> int:
    """Return the number of graphs from their indices, which waits for a GPU."""
    if not torch.compiler.is_exporting():
        return int(last) + 1
    # Not `int()`, which would ask an exporter for the number itself.
    number = cast("int", last.item())
    torch._check(number >= 0)
    return number + 1


def membership_of(
    graphs: Data, nodes: int, device: torch.device
) -> tuple[Int[Tensor, " nodes"], Int[Tensor, " boundaries"] | None, int]:
    """Return `batch`, `ptr` and the number of graphs; without `batch` there is one graph.

    The length of `ptr`, which every PyG batch has, gives the number of graphs without waiting for
    the GPU.
    """
    batch, ptr = column(graphs, "batch"), column(graphs, "ptr")
    if batch is None:
        return torch.zeros(nodes, dtype=torch.int64, device=device), None, 1
    if ptr is not None:
        return batch, ptr, ptr.shape[0] - 1
    return batch, None, count_up_to(batch.max()) if batch.numel() else 0


def topology_of(graphs: Data) -> Topology:
    """Return the `Topology` of a PyG batch."""
    x = required(graphs, "x", "as node features")
    edge_index = required(graphs, "edge_index", "as pairs of nodes")
    batch, ptr, num_graphs = membership_of(graphs, x.shape[0], x.device)
    found = {name: column(graphs, name) for name in COLUMNS}
    return Topology(
        edge_index=edge_index,
        batch=batch,
        num_graphs=num_graphs,
        columns={name: each for name, each in found.items() if each is not None},
        ptr=ptr,
        num_real_nodes=column(graphs, "num_real_nodes"),
        num_real_edges=column(graphs, "num_real_edges"),
        dense_blocks=getattr(graphs, "dense_blocks", None),
    )


def make_batch(gather: Gather, ids: Numbers, by_source: bool = False) -> Batch:
    """Make a PyG batch of columns; node indices are shifted.

    It can be separated again like any PyG batch.
    """
    plan = gather.plan(ids)
    columns = gather.columns(plan, by_source)
    ptrs = [torch.from_numpy(ptr) for ptr in plan.ptrs]
    before: dict[int | None, Tensor | None] = {None: None, 0: torch.from_numpy(plan.ptrs[0, :-1])}
    if by_source:
        before[1] = torch.from_numpy(plan.ptrs[1, :-1])
    slices = {"graph_key": ptrs[2]}
    shifts: dict[str, Tensor | None] = {"graph_key": None}
    has_nodes = False
    for name, table, _, _, _, counts in gather.outs[1:]:
        if name in columns:
            slices[name], shifts[name] = ptrs[table], before[counts]
            has_nodes |= table == 0
    batch = Batch(**columns)
    # As `Batch.from_data_list` leaves them; PyG takes batches apart by these alone.
    batch._slice_dict, batch._inc_dict = slices, shifts
    if not has_nodes:
        batch.num_nodes = int(plan.ptrs[0, -1])
    return batch

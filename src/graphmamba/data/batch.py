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
"""How many graphs have at most how many nodes, the largest graphs first."""

NODES_MULTIPLE = 16
"""Nodes of a block come in so many: kernels of attention want masks that are aligned so."""
MARGIN = 16
"""Nodes that a graph may have beyond what was seen at its place among the sorted ones."""
SHARES = 8, 4, 2
"""Blocks begin with the largest graph and behind these shares of all."""
WORTHWHILE = 0.85
"""Nodes of a block beside those of the one before it, at most; else they are one."""


def blocks_for(lengths: Int[np.ndarray, " places"]) -> Blocks:
    """Choose blocks.

    A block costs as many operations as it has nodes, squared, and one more launch.

    Args:
        lengths: Nodes of the graph at each place at most, descending.
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
    """Return what suffices for nearly all batches.

    Args:
        seen: Nodes of the graphs of some batches, descending.
        most: Those of the largest graphs of all.
    """
    return np.minimum(seen.max(axis=0) + MARGIN, most)


def descending(nodes: Int[np.ndarray, " graphs"], places: int) -> Int[np.ndarray, " places"]:
    """Sort the sizes of graphs, empty places behind them."""
    ordered = np.zeros(max(places, len(nodes)), nodes.dtype)
    ordered[: len(nodes)] = np.sort(nodes)[::-1]
    return ordered


def do_fit(blocks: Blocks, nodes: Int[np.ndarray, " graphs"]) -> bool:
    """Whether graphs of so many nodes have room; without blocks they do."""
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
"""Columns that `topology_of` takes over from a batch; layers read `gate_encoding` besides."""


@dataclass(frozen=True)
class Topology:
    """The graphs of one batch, laid end to end: what a layer reads besides its embeddings."""

    edge_index: Int[Tensor, "2 edges"]
    """Row 0 the sources, row 1 the targets; messages flow from source to target."""
    batch: Int[Tensor, " nodes"]
    """Graph of each node, ascending."""
    num_graphs: int
    """Graphs in the batch, those without nodes included."""
    seed: Int[Tensor, ""] | None = None
    """Seed of this forward pass, which random orders need (see `ordering.NoiseSeed`)."""
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
    """First node of each graph, and the number of nodes; found from `batch` if None."""
    num_real_nodes: Int[Tensor, ""] | None = None
    """Nodes before those of the padding graph that pads a static batch; None where all are real."""
    num_real_edges: Int[Tensor, ""] | None = None
    """Edges before those of the padding graph, likewise."""
    dense_blocks: Blocks | None = None
    """Room for all graphs but the padding graph in padded blocks; None where it has to be found."""
    edge_layout: EdgeLayout | None = None
    """Which edges meet at each node; `Backbone` looks it up once for all layers."""
    node_order: Any = None
    """Order of the nodes in this layer, an `ordering.NodeOrder`; None where the layer finds it."""
    wants_edges: bool = True
    """Whether anybody reads the edge embeddings that a layer returns; a layer may return None
    if not."""
    _dropout_seed: Int[Tensor, ""] | None = None
    _cache: dict[Any, Any] | None = field(default=None, repr=False)

    @property
    def dropout_seed(self) -> Int[Tensor, ""] | None:
        """What dropouts of this pass follow, with the place of a row in the batch."""
        return self.seed if self._dropout_seed is None else self._dropout_seed

    def with_dropout_seed(self, seed: Int[Tensor, ""] | None) -> "Topology":
        """Return the same graphs for dropouts that follow another seed than orders, unless None."""
        return self if seed is None else replace(self, _dropout_seed=seed)

    def with_cache(self) -> "Topology":
        """Return the same graphs, and let copies of it share what `cached` makes."""
        return replace(self, _cache={})

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` makes of the graphs, made once for all layers of a pass.

        Compiled layers each make it: were they to keep it, later ones would be compiled again.
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
        """Return the layout of the edges, looked up now where nobody has done it before."""
        if self.edge_layout is not None:
            return self.edge_layout
        order, source_ptr, target_ptr = map(
            self.columns.get, ("source_order", "source_ptr", "target_ptr")
        )
        if order is not None and source_ptr is not None and target_ptr is not None:
            return EdgeLayout(self.edge_index, target_ptr, source_ptr, order)
        return lay_out_edges(self.edge_index, self.batch.shape[0], order)


def column(graphs: Data, name: str) -> Tensor | None:
    """Return a column, None where the batch has none of that name."""
    return getattr(graphs, name, None)


def required(graphs: Data, name: str, why: str) -> Tensor:
    """Return a column that must be there."""
    found = column(graphs, name)
    if found is None:
        raise UserError(f"graphs.{name} must be given {why}, got None")
    return found


def count_up_to(last: Int[Tensor, ""]) -> int:
    """Return the number of graphs up to the last one, for which a GPU has to be waited for."""
    if not torch.compiler.is_exporting():
        return int(last) + 1
    # Not `int()`, which would ask an exporter for the number itself.
    number = cast("int", last.item())
    torch._check(number >= 0)
    return number + 1


def membership_of(
    graphs: Data, nodes: int, device: torch.device
) -> tuple[Int[Tensor, " nodes"], Int[Tensor, " boundaries"] | None, int]:
    """Read off `batch`, `ptr` and the number of graphs; without `batch` all nodes are of one graph.

    `ptr`, which every PyG batch has, spares a wait for the GPU: its length tells the number of
    graphs.
    """
    batch, ptr = column(graphs, "batch"), column(graphs, "ptr")
    if batch is None:
        return torch.zeros(nodes, dtype=torch.int64, device=device), None, 1
    if ptr is not None:
        return batch, ptr, ptr.shape[0] - 1
    return batch, None, count_up_to(batch.max()) if batch.numel() else 0


def topology_of(graphs: Data) -> Topology:
    """Read off who belongs to which graph and who is joined to whom."""
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
    """Copy the rows of graphs, one graph after another, and move the numbers of their nodes.

    The batch can be taken apart again like one that PyG makes.
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

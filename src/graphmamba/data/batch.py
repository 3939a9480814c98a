"""A batch of graphs: PyG's `Batch`, and the `Topology` that layers read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, cast
from weakref import ref

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.data.storage import GlobalStorage

from graphmamba.data.gather import Gather
from graphmamba.data.tables import DESCRIPTORS, Numbers
from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import EdgeLayout, lay_out_edges

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
    """Tell what will do for nearly all batches.

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
    """Tell whether graphs of so many nodes have room; there is no saying without blocks."""
    if not blocks:
        return True
    places = sum(graphs for graphs, _ in blocks)
    ordered, begin = descending(nodes, places), 0
    for graphs, most in blocks:
        if ordered[begin] > most:
            return False
        begin += graphs
    return len(ordered) == places


@dataclass(frozen=True)
class Topology:
    """The graphs of one batch, laid end to end."""

    edge_index: Int[Tensor, "2 edges"]
    """Row 0 the sources, row 1 the targets; messages flow from source to target."""
    batch: Int[Tensor, " nodes"]
    """Graph of each node, ascending."""
    num_graphs: int
    """Graphs in the batch, those without nodes included."""
    graph_key: Int[Tensor, " graphs"] | None = None
    """What names a graph for the random numbers, such as its place in the data set; 0 if absent."""
    seed: Int[Tensor, ""] | None = None
    """Seed of this forward pass, which random orders need (see `ordering.NoiseSeed`)."""
    dropout_seed_override: Int[Tensor, ""] | None = None
    """Seed of its dropouts, where it is another one: see `dropout_seed`."""
    graph_attr: Float[Tensor, "graphs columns"] | None = None
    """Numbers of each graph, where its head reads any."""
    centrality: Float[Tensor, " nodes"] | None = None
    """Eigenvector centrality, where an order asks for it."""
    random_walk: Float[Tensor, "nodes steps"] | None = None
    """Return probabilities of random walks (RWSE), where an order or an encoder asks for them."""
    cluster: Int[Tensor, " nodes"] | None = None
    """Louvain community of each node within its graph, where an order asks for it."""
    laplacian_vectors: Float[Tensor, "nodes eigenvectors"] | None = None
    """Eigenvectors of each graph's Laplacian, where an order or an encoder asks for them."""
    laplacian_values: Float[Tensor, "nodes eigenvectors"] | None = None
    """Their eigenvalues, given to each node."""
    expander_index: Int[Tensor, "2 expanders"] | None = None
    """Edges of a random regular graph over each graph's nodes (Exphormer)."""
    gate_encoding: Float[Tensor, "nodes channels"] | None = None
    """Equivariant-stable positions that modulate GatedGCN's gates."""
    num_real_nodes: Int[Tensor, ""] | None = None
    """Nodes before those of the padding graph that pads a static batch; None where all are real."""
    num_real_edges: Int[Tensor, ""] | None = None
    """Edges before those of the padding graph, likewise."""
    source_order: Int[Tensor, " edges"] | None = None
    """Edges in the order of their sources, where they themselves lie in that of their targets."""
    source_ptr: Int[Tensor, " node_boundaries"] | None = None
    """Where the edges of each node begin in `source_order`, if it is known."""
    target_ptr: Int[Tensor, " node_boundaries"] | None = None
    """Where they begin among the edges as they lie, likewise."""
    wants_edges: bool = True
    """Whether anybody reads the edge embeddings that a layer returns; a layer may return None
    if not."""
    edge_layout: EdgeLayout | None = None
    """Which edges meet at each node; `Backbone` looks it up once for all layers."""
    ptr: Int[Tensor, " boundaries"] | None = None
    """First node of each graph, and the number of nodes, where somebody knows them already."""
    node_order: Any = None
    """Order of the nodes in this layer, an `ordering.NodeOrder`; None where the layer finds it."""
    dense_blocks: Blocks | None = None
    """Room for all graphs but the padding graph in padded blocks; None where it has to be found."""
    dense_layout: Any = None
    """Where each node goes in them, found once for all layers; see `nn.attention.DenseLayout`."""
    block_patterns: Mapping[Any, Any] | None = None
    """Which block of nodes attends to which, likewise; see `nn.bigbird.BlockPattern`."""
    spectral_basis: Any = None
    """Eigenvectors in padded blocks, likewise; see `nn.spectral.SpectralBasis`."""

    def starts(self) -> Int[Tensor, " boundaries"]:
        """Return the first node of each graph, and the number of nodes."""
        if self.ptr is not None:
            return self.ptr
        every = torch.arange(self.num_graphs + 1, device=self.batch.device)
        return torch.searchsorted(self.batch, every)

    @property
    def dropout_seed(self) -> Int[Tensor, ""] | None:
        """What dropouts of this pass follow, with the place of a row in the batch."""
        return self.seed if self.dropout_seed_override is None else self.dropout_seed_override

    def lay_out(self) -> EdgeLayout:
        """Return the layout of the edges, looked up now where nobody has done it before."""
        if self.edge_layout is not None:
            return self.edge_layout
        source, target, order = self.source_ptr, self.target_ptr, self.source_order
        if source is not None and target is not None and order is not None:
            return EdgeLayout(self.edge_index, target, source, order)
        return lay_out_edges(self.edge_index, self.batch.shape[0], self.source_order)


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
    return Topology(
        edge_index=edge_index,
        batch=batch,
        num_graphs=num_graphs,
        graph_key=column(graphs, "graph_key"),
        graph_attr=column(graphs, DESCRIPTORS),
        centrality=column(graphs, "centrality"),
        laplacian_vectors=column(graphs, "laplacian_vectors"),
        laplacian_values=column(graphs, "laplacian_values"),
        random_walk=column(graphs, "random_walk"),
        cluster=column(graphs, "cluster"),
        expander_index=column(graphs, "expander_index"),
        num_real_nodes=column(graphs, "num_real_nodes"),
        num_real_edges=column(graphs, "num_real_edges"),
        source_order=column(graphs, "source_order"),
        source_ptr=column(graphs, "source_ptr"),
        target_ptr=column(graphs, "target_ptr"),
        ptr=ptr,
        dense_blocks=getattr(graphs, "dense_blocks", None),
    )


@cache
def _blank() -> tuple[type[Batch], dict[str, Any]]:
    """Class of a batch, and what each has besides its columns."""
    batch = Batch(_base_cls=Data)
    return type(batch), {name: each for name, each in vars(batch).items() if name != "_store"}


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
    batch = bare_batch(columns, len(ids))
    vars(vars(batch)["_store"]).update(_slice_dict=slices, _inc_dict=shifts)
    if not has_nodes:
        batch.num_nodes = int(plan.ptrs[0, -1])
    return batch


def bare_batch(columns: Mapping[str, Tensor], num_graphs: int) -> Batch:
    """Put columns together; what it takes to take the batch apart is not there."""
    # PyG would look the class up again for each batch, and each column twice; both take longer than
    # to copy the rows.
    kind, rest = _blank()
    batch, store = object.__new__(kind), object.__new__(GlobalStorage)
    vars(store).update(_mapping=dict(columns), _parent=ref(batch), _num_graphs=num_graphs)
    vars(batch).update(rest, _store=store)
    return batch

"""Who belongs to which graph, and who is joined to whom: what a layer knows beside x and e."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.dense_blocks import Blocks
from graphmamba.ops.edge_layout import EdgeLayout, lay_out_edges


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

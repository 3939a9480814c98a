"""Message passing: GCN, GCN+ (`GCNE`), GINE and GIN, GraphSAGE; see also `gated_gcn`."""

import torch
from torch import nn
from torch.nn.functional import relu

from graphmamba.data.batch import Topology
from graphmamba.nn.base import Edges, LocalModel, Nodes, required_edges
from graphmamba.nn.norm import Dropout
from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.neighbor_sum import sum_neighbors
from graphmamba.ops.segments import sum_at_targets, sum_segments, take_rows, take_sources


class GCN(LocalModel):
    r"""Graph convolution, https://arxiv.org/abs/1609.02907.

    .. math::
        x'_i = W \sum_{j \to i} \frac{x_j}{\sqrt{d_i d_j}} + \frac{W x_i}{d_i}

    with d the number of incoming edges plus one. Every node has exactly one edge to itself,
    whatever self-loops the data has. Edge embeddings are returned unchanged.

    Args:
        channels: Width of the node embeddings.
        has_bias: Whether a bias is added.
    """

    def __init__(self, channels: int, *, has_bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, channels, bias=has_bias)
        nn.init.xavier_uniform_(self.linear.weight)
        if has_bias:
            nn.init.zeros_(self.linear.bias)

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        source, target = topology.edge_index
        is_real = (source != target).to(x.dtype)[:, None]  # [edges, 1]
        layout = topology.lay_out()
        scale = (1 + sum_at_targets(is_real, layout)).rsqrt()  # [nodes, 1]
        scaled = x * scale
        received = scaled + sum_at_targets(take_sources(scaled, layout) * is_real, layout)
        return self.linear(received * scale), e


class GCNE(LocalModel):
    r"""Sum over neighbours with edge embeddings, https://arxiv.org/abs/2502.09263.

    .. math::
        x'_i = b + \sum_{j \to i} \mathrm{ReLU}(W x_j + e_{ij})

    Called GCN there, but without normalisation and without self-loops.

    Args:
        channels: Width of node and edge embeddings.
        is_centered: Whether the sum is centred by degree (`center_sums`).
    """

    def __init__(self, channels: int, *, is_centered: bool = False) -> None:
        super().__init__()
        self.is_centered = is_centered
        self.linear = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        """Aggregate the neighbours; edge embeddings are returned unchanged."""
        e = required_edges(e, "GCNE")
        layout = topology.lay_out()
        received = sum_at_targets(relu(take_sources(self.linear(x), layout) + e), layout)
        return (center_sums(received, topology) if self.is_centered else received) + self.bias, e


class GINE(LocalModel):
    r"""Sum of neighbours through a two-layer perceptron, https://arxiv.org/abs/1905.12265.

    .. math::
        x'_i = \mathrm{MLP}\Big(x_i + \sum_{j \to i} \mathrm{ReLU}(x_j + e_{ij})\Big)

    Args:
        channels: Width of node and edge embeddings.
        activation: Between the two layers.
        dropout: Rate after that activation.
        reads_edges: False for GIN, which sums node embeddings alone.
        is_centered: Whether the sum is centred by degree (`center_sums`).
    """

    def __init__(
        self,
        channels: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        reads_edges: bool = True,
        is_centered: bool = False,
    ) -> None:
        super().__init__()
        self.activation, self.dropout = activation_function(activation), Dropout(dropout)
        self.reads_edges, self.is_centered = reads_edges, is_centered
        self.first = nn.Linear(channels, channels)
        self.second = nn.Linear(channels, channels)

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        """Aggregate the neighbours; edge embeddings are returned unchanged."""
        layout = topology.lay_out()
        message = take_sources(x, layout)
        if self.reads_edges:
            message = relu(message + required_edges(e, "GINE"))
        received = sum_at_targets(message, layout)
        if self.is_centered:
            received = center_sums(received, topology)
        hidden = self.activation(self.first(x + received))
        return self.second(self.dropout(hidden, topology.dropout_seed)), e


class SAGE(LocalModel):
    r"""GraphSAGE with the mean, https://arxiv.org/abs/1706.02216.

    .. math::
        x'_i = W_{self} x_i + W \frac{1}{d_i} \sum_{j \to i} x_j + b

    with d the number of incoming edges; without any, the second term is 0. A node and its
    neighbours have separate weights, which helps on heterophilous graphs. Edge embeddings are
    returned unchanged.

    Args:
        channels: Width of the node embeddings.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.own = nn.Linear(channels, channels)
        self.neighbors = nn.Linear(channels, channels, bias=False)

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        layout = topology.lay_out()
        degree = layout.target_ptr.diff().clamp_min(1)[:, None]  # [nodes, 1]
        mean = sum_neighbors(x, layout) / degree
        return torch.addmm(self.own(x), mean, self.neighbors.weight.T), e


def center_sums(sums: Nodes, topology: Topology) -> Nodes:
    r"""Subtract from each sum over neighbours the value expected from the degree alone.

    .. math::
        a_i = \frac{1}{\sqrt{\bar d}} \Big(s_i - d_i \frac{\sum_k s_k}{\sum_k d_k}\Big)

    over the nodes k of the graph, with d the number of incoming edges and its mean over the graph
    under the root. A mean over neighbours loses their number, and a plain sum is dominated by it.
    In a stochastic block model the evidence for the block of a node is linear in sums over its
    neighbours (https://arxiv.org/abs/1703.10146), while the degree carries none.

    Args:
        sums: The sum over the incoming edges of each node.
        topology: The graphs.
    """
    ptr, batch = topology.starts(), topology.batch
    exact = torch.promote_types(sums.dtype, torch.float32)
    degree = topology.lay_out().target_ptr.diff().to(exact)[:, None]  # [nodes, 1]
    together = torch.cat([sums.to(exact), degree], dim=1)
    of_graph = sum_segments(together, batch, ptr)  # [graphs, channels + 1]
    edges = of_graph[:, -1:].clamp_min(1)
    shrink = torch.rsqrt(edges / ptr.diff().clamp_min(1)[:, None])
    shared = take_rows(torch.cat([of_graph[:, :-1] / edges, shrink], dim=1), batch, ptr)
    return ((sums - degree * shared[:, :-1]) * shared[:, -1:]).to(sums.dtype)

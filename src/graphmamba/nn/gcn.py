"""Graph convolutions: GCN with symmetric normalisation, GCN+ with edge embeddings."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_is, check_least
from graphmamba.data.batch import Topology
from graphmamba.nn.base import LocalModel, required_edges
from graphmamba.nn.centered_sums import center_sums
from graphmamba.ops.segments import sum_at_targets, take_sources


class GCN(LocalModel):
    r"""Graph convolution, https://arxiv.org/abs/1609.02907.

    .. math::
        x'_i = W \sum_{j \to i} \frac{x_j}{\sqrt{d_i d_j}} + \frac{W x_i}{d_i}

    with d the number of incoming edges plus one. Every node has exactly one edge to itself,
    whatever self-loops the data has. Edge embeddings are passed on unread.

    Args:
        channels: Width of the node embeddings.
        has_bias: Whether a bias is added.
    """

    def __init__(self, channels: int, *, has_bias: bool = True) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.linear = nn.Linear(channels, channels, bias=has_bias)
        nn.init.xavier_uniform_(self.linear.weight)
        if has_bias:
            nn.init.zeros_(self.linear.bias)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Average over neighbours."""
        source, target = topology.edge_index
        is_real = (source != target).to(x.dtype)[:, None]  # [edges, 1]
        layout = topology.lay_out()
        scale = (1 + sum_at_targets(is_real, layout)).rsqrt()  # [nodes, 1]
        scaled = x * scale
        received = scaled + sum_at_targets(take_sources(scaled, layout) * is_real, layout)
        return self.linear(received * scale), e


class GCNE(LocalModel):
    r"""Sum over neighbours with a row for each edge, https://arxiv.org/abs/2502.09263.

    .. math::
        x'_i = b + \sum_{j \to i} \mathrm{ReLU}(W x_j + e_{ij})

    Named a GCN there, but nothing is normalised, and a node does not hear itself.

    Args:
        channels: Width of node and edge embeddings.
        is_centered: Whether the sum is centred by degree (`center_sums`).
    """

    def __init__(self, channels: int, *, is_centered: bool = False) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.is_centered = is_centered
        self.linear = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Add up the neighbours; edge embeddings are passed on as they are."""
        e = required_edges(e, "GCNE")
        layout = topology.lay_out()
        message = functional.relu(take_sources(self.linear(x), layout) + e)
        received = sum_at_targets(message, layout)
        return (center_sums(received, topology) if self.is_centered else received) + self.bias, e

"""Messages against the direction of the edges."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.ops.edge_layout import lay_out_edges


class ReverseEdges(nn.Module):
    r"""Give each edge a twin in the other direction, marked by a learned row.

    .. math:: e_{ji} = e_{ij} + r \quad\text{for each edge}\quad j \to i

    For directed graphs, on which messages otherwise flow one way only
    (https://arxiv.org/abs/2305.10498); where edges lie in both directions already, each would be
    there twice.

    Args:
        channels: Width of the edge embeddings.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reverse = nn.Parameter(torch.randn(1, channels))

    def both_ways(self, topology: Topology) -> Topology:
        """Return the graphs with each edge followed by its twin, so that real ones stay first."""
        edge_index = topology.edge_index
        both = torch.stack([edge_index, edge_index.flip(0)], dim=2).flatten(1)
        real = topology.num_real_edges
        return replace(
            topology,
            edge_index=both,
            edge_layout=lay_out_edges(both, topology.batch.shape[0], check=False),
            num_real_edges=None if real is None else 2 * real,
        )

    def forward(self, e: Float[Tensor, "edges channels"]) -> Float[Tensor, "twice_edges channels"]:
        """Return a row for each edge and its twin."""
        return torch.stack([e, e + self.reverse], dim=1).flatten(0, 1)

"""Normalisations of node rows that know which graph a row belongs to."""

from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_choice
from graphmamba.data.topology import Topology
from graphmamba.nn.batch_norm import BatchNorm
from graphmamba.nn.options import NormName
from graphmamba.ops.segment_sum import sum_segments, take_rows


class GraphLayerNorm(nn.Module):
    """LayerNorm over all rows and channels of a graph at once.

    Args:
        channels: Width of the rows.
        eps: Added to the variance.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Centre and scale every graph by itself."""
        centred = x - self._graph_mean(x, topology)
        variance = self._graph_mean(centred.square(), topology)
        return centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias

    def _graph_mean(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes 1"]:
        ptr = topology.starts()
        sums = sum_segments(x.mean(dim=1, keepdim=True), topology.batch, ptr)  # [graphs, 1]
        means = sums / ptr.diff().clamp_min(1)[:, None]
        return take_rows(means, topology.batch, ptr)


KINDS: dict[NormName, type[BatchNorm] | type[nn.LayerNorm] | type[GraphLayerNorm]] = {
    "batch": BatchNorm,
    "layer": nn.LayerNorm,
    "graph": GraphLayerNorm,
}


class NodeNorm(nn.Module):
    """The normalisation of that name, called alike whether or not it looks at graphs.

    Args:
        name: Which one.
        channels: Width of the rows.
        weight: What its weights start with.
    """

    def __init__(self, name: NormName, channels: int, weight: float = 1.0) -> None:
        super().__init__()
        check_choice("norm", name, get_args(NormName))
        self.name = name
        self.norm: nn.Module = nn.Identity()
        if name != "none":
            norm = KINDS[name](channels)
            nn.init.constant_(norm.weight, weight)
            self.norm = norm

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Normalise the node rows."""
        if self.name == "batch":
            return self.norm(x, topology.num_real_nodes)
        return self.norm(x, topology) if self.name == "graph" else self.norm(x)

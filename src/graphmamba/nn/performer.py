"""Attention in linear time by random features."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_divides, check_least
from graphmamba.data.batch import Topology
from graphmamba.nn.attention import DenseLayout
from graphmamba.nn.base import GlobalModel, Nodes
from graphmamba.nn.norm import Dropout

EPSILON = 1e-4
"""Added to each random feature, as published, so that no denominator is 0."""


class Performer(GlobalModel):
    r"""Attention whose kernel is a product of positive random features (FAVOR+).

    .. math::
        \exp(q \cdot k) \approx \phi(q) \cdot \phi(k), \quad
        \phi(v) = m^{-1/2} \exp(P v - |v|^2 / 2)

    https://arxiv.org/abs/2009.14794. Padding is left out of the sums, unlike in the published code,
    where it changes the output of small graphs.

    Args:
        channels: Width of the node embeddings.
        heads: Attention heads.
        dropout: Rate on the output.
        head_width: Width of each head. None is channels / heads, which matches the size of the
            other global models; 64 is published, and makes the model far larger than its baselines.
        features: Random features of each head; `head_width * ln(head_width)` if None, which is
            266 at the published width. They are drawn once.
    """

    projection: Tensor

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        dropout: float = 0.0,
        head_width: int | None = None,
        features: int | None = None,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_divides("heads", heads, "channels", channels)
            head_width = channels // heads
        check_least("heads", heads, 1)
        check_least("head_width", head_width, 1)
        if features is None:
            features = max(1, int(head_width * math.log(head_width)))
        check_least("features", features, 1)
        self.heads, self.dropout = heads, Dropout(dropout)
        self.in_proj = nn.Linear(channels, 3 * heads * head_width, bias=False)
        self.out_proj = nn.Linear(heads * head_width, channels)
        self.register_buffer("projection", orthogonal_features(features, head_width))

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        layout = DenseLayout.of(topology)
        rows = self.in_proj(x).unflatten(-1, (3, self.heads, -1))
        mixed = []
        for dense, is_seen in zip(layout.pad(rows), layout.is_seen, strict=True):
            is_key = is_seen[:, None, :, None]  # [graphs, 1, longest, 1]
            query, key, value = dense.permute(2, 0, 3, 1, 4)  # [graphs, heads, longest, width]
            query_dash, query_half = self._exponent(query)
            key_dash, key_half = self._exponent(key)
            # Each shift cancels in the quotient, and keeps the exponentials below 1.
            query_top = query_dash.amax(dim=-1, keepdim=True)
            key_top = key_dash.masked_fill(~is_key, float("-inf")).amax(dim=(-2, -1), keepdim=True)
            query_phi = torch.exp(query_dash - query_half - query_top.detach()) + EPSILON
            key_phi = torch.exp(key_dash - key_half - key_top.detach()) + EPSILON
            key_phi = torch.where(is_key, key_phi, 0.0)
            # Summed first, the number of keys no longer multiplies that of the queries.
            total = key_phi.sum(dim=-2).unsqueeze(-1)  # [graphs, heads, features, 1]
            summed = key_phi.transpose(-2, -1) @ value  # [graphs, heads, features, width]
            mixed.append(((query_phi @ summed) / (query_phi @ total)).transpose(1, 2))
        out = self.out_proj(layout.unpad(mixed).flatten(1))
        return self.dropout(out, topology.dropout_seed)

    def _exponent(
        self, rows: Float[Tensor, "graphs heads longest width"]
    ) -> tuple[
        Float[Tensor, "graphs heads longest features"], Float[Tensor, "graphs heads longest 1"]
    ]:
        """Exponent of the random features."""
        scaled = rows * rows.shape[-1] ** -0.25
        half_square = scaled.square().sum(dim=-1, keepdim=True) / 2
        return scaled @ self.projection.T.to(rows.dtype), half_square


def orthogonal_features(features: int, width: int) -> Float[Tensor, "features width"]:
    """Gaussian vectors, orthogonal in groups of `width`."""
    q, r = torch.linalg.qr(torch.randn(-(-features // width), width, width))
    # The routine prefers some signs, which would bias the kernel; these undo its preference.
    directions = (q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]).flatten(0, 1)
    return directions[:features] * torch.randn(features, width).norm(dim=1, keepdim=True)

"""The gated sum over the edges of each node in plain PyTorch."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.edge_layout import EdgeLayout

EPSILON = 1e-6  # keeps the quotient of a node without edges finite


def gated_sum(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Float[Tensor, "edges channels"],
    layout: EdgeLayout,
    scale: Float[Tensor, " edges"] | None = None,
) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"]]:
    """Reference of `graphmamba.ops.gated_sum.gated_sum`."""
    exact = torch.promote_types(nodes.dtype, torch.float32)
    source, target = layout.edge_index
    own, sent, to_target, to_source = nodes.to(exact).chunk(4, dim=-1)
    e_hat = to_target[target] + to_source[source] + edges.to(exact)
    gate = torch.sigmoid(e_hat)
    if scale is not None:
        gate = gate * scale.to(exact)[:, None]
    nothing = torch.zeros_like(own)
    received = nothing.index_add(0, target, gate * sent[source])
    opened = nothing.index_add(0, target, gate)
    return (own + received / (opened + EPSILON)).to(nodes.dtype), e_hat.to(edges.dtype)

"""Sums over neighbours, centred by degree."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.data.batch import Topology
from graphmamba.ops.segments import sum_segments, take_rows


def center_sums(
    sums: Float[Tensor, "nodes channels"], topology: Topology
) -> Float[Tensor, "nodes channels"]:
    r"""Subtract from each sum over neighbours what the degree alone lets expect.

    .. math::
        a_i = \frac{1}{\sqrt{\bar d}} \Big(s_i - d_i \frac{\sum_k s_k}{\sum_k d_k}\Big)

    over the nodes k of the graph, with d the number of incoming edges and its mean over the graph
    below the root. A mean over neighbours loses how many there are, and a plain sum tells mostly
    that. In a stochastic block model the evidence for the block of a node is linear in sums over
    its neighbours (https://arxiv.org/abs/1703.10146), and the degree says nothing of it.

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

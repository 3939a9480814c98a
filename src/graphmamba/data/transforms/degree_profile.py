"""Local degree profiles: degrees of each node and around it, in the place of features."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import global_edges
from graphmamba.data.tables import GraphColumns

DEGREE_PROFILE_COLUMNS = 5


def local_degree_profile(
    edge_index: Int[Tensor, "2 edges"], nodes: int, is_unbiased: bool = True
) -> Float[Tensor, "nodes 5"]:
    """Out-degree of each node, then minimum, maximum, mean, deviation of its targets' out-degrees.

    A node without outgoing edges has zeros. The published numbers divide the variance by n - 1
    (`is_unbiased`), newer releases of PyTorch Geometric by n.
    """
    source, target = edge_index
    degree = torch.zeros(nodes).index_add_(0, source, torch.ones(source.numel()))
    reached = degree[target]

    def reduce(values: Float[Tensor, " edges"], how: str) -> Float[Tensor, " nodes"]:
        return torch.zeros(nodes).scatter_reduce_(0, source, values, how, include_self=False)

    mean = reduce(reached, "mean")
    squares = reduce((reached - mean[source]).square(), "sum")
    divisor = (degree - 1 if is_unbiased else degree).clamp_min(1.0)
    deviation = (squares / divisor).sqrt()
    return torch.stack(
        [degree, reduce(reached, "amin"), reduce(reached, "amax"), mean, deviation], dim=1
    )


def degree_profiles(columns: GraphColumns, is_unbiased: bool = True) -> Float[Tensor, "nodes 5"]:
    """`local_degree_profile` of every graph: end to end they are one large graph."""
    nodes = int(columns.node_ptr[-1])
    return local_degree_profile(global_edges(columns), nodes, is_unbiased)

"""Local degree profiles, used as features where there are none."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.data.parallel import global_edges
from graphmamba.data.tables import GraphColumns

DEGREE_PROFILE_COLUMNS = 5


def degree_profiles(columns: GraphColumns, is_unbiased: bool = True) -> Float[Tensor, "nodes 5"]:
    """Out-degree of each node, then minimum, maximum, mean, deviation of its targets' out-degrees.

    A node without outgoing edges has zeros. The published numbers divide the variance by n - 1
    (`is_unbiased`), newer releases of PyTorch Geometric by n.
    """
    # end to end all graphs are one large graph
    source, target = global_edges(columns)
    nodes = int(columns.node_ptr[-1])
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

"""Node orders: from scores of nodes to sequences (`order`, `cu_seqlens`)."""

from graphmamba.ordering.permutation import NodeOrder, order_layers, order_nodes
from graphmamba.ordering.policy import ABLATIONS, PUBLISHED, OrderPolicy
from graphmamba.ordering.seed import DrawnSeed, NoiseSeed

__all__ = [
    "ABLATIONS",
    "PUBLISHED",
    "DrawnSeed",
    "NodeOrder",
    "NoiseSeed",
    "OrderPolicy",
    "order_layers",
    "order_nodes",
]

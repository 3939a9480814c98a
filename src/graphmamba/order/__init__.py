"""Scores of the nodes -> sequences: which node comes when, and where each sequence ends."""

from graphmamba.order.line_up import LineUp, line_up, line_up_layers
from graphmamba.order.policy import ABLATIONS, PUBLISHED, OrderPolicy
from graphmamba.order.seed import DrawnSeed, NoiseSeed

__all__ = [
    "ABLATIONS",
    "PUBLISHED",
    "DrawnSeed",
    "LineUp",
    "NoiseSeed",
    "OrderPolicy",
    "line_up",
    "line_up_layers",
]

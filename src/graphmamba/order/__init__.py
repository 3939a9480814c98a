"""Scores of the nodes -> sequences: which node comes when, and where each sequence ends."""

from graphmamba.order.line_up import LineUp, line_up, line_up_layers
from graphmamba.order.policy import ABLATIONS, PUBLISHED, OrderPolicy
from graphmamba.order.seed import NoiseSeed

__all__ = [
    "ABLATIONS",
    "PUBLISHED",
    "LineUp",
    "NoiseSeed",
    "OrderPolicy",
    "line_up",
    "line_up_layers",
]

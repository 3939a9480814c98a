"""Scores of the nodes -> sequences: which node comes when, and where each sequence ends."""

from graphmamba.ordering.permutation import LineUp, line_up, line_up_layers
from graphmamba.ordering.policy import ABLATIONS, PUBLISHED, OrderPolicy
from graphmamba.ordering.seed import DrawnSeed, NoiseSeed

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

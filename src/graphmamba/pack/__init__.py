"""Rows of all graphs end to end -> one dense block per graph, and back."""

from graphmamba.pack.dense import DenseLayout

__all__ = ["DenseLayout"]

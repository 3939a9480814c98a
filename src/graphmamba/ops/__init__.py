"""Operators on tensors, each with a reference in PyTorch and faster implementations."""

from graphmamba.ops.backends import available_backends
from graphmamba.ops.causal_conv1d import causal_conv1d
from graphmamba.ops.selective_scan import selective_scan

__all__ = ["available_backends", "causal_conv1d", "selective_scan"]

"""Packed rows and `cu_seqlens` to packed rows; tensors only, knows no graphs."""

from graphmamba.scan.backends import available_backends
from graphmamba.scan.causal_conv1d import causal_conv1d
from graphmamba.scan.selective_scan import selective_scan

__all__ = ["available_backends", "causal_conv1d", "selective_scan"]

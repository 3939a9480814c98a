"""The choices that several layers share, as types."""

from typing import Literal

from graphmamba.ops.activation import Activation, activation_function

__all__ = ["Activation", "NormName", "activation_function"]

NormName = Literal["batch", "layer", "graph", "none"]
"""`batch`: BatchNorm over all nodes, as in every published Graph-Mamba; `layer`: LayerNorm of each
row; `graph`: LayerNorm over all rows of a graph at once, which is what PyTorch Geometric's
LayerNorm does and the tuned LRGB recipes mean by a layer norm."""

"""The choices that several layers share, as types and as functions."""

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor
from torch.nn import functional

from graphmamba.checks import check_choice

Activation = Literal["relu", "gelu", "none"]
NormName = Literal["batch", "layer", "graph", "none"]
"""`batch`: BatchNorm over all nodes, as in every published Graph-Mamba; `layer`: LayerNorm of each
row; `graph`: LayerNorm over all rows of a graph at once, which is what PyTorch Geometric's
LayerNorm does and the tuned LRGB recipes mean by a layer norm."""

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "none": lambda rows: rows,
}


def activation_function(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Look up the function of that name."""
    check_choice("activation", activation, get_args(Activation))
    return _FUNCTIONS[activation]

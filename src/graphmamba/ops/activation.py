"""Activation functions by name."""

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor
from torch.nn import functional

from graphmamba.checks import check_choice

Activation = Literal["relu", "gelu", "none"]

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "none": lambda rows: rows,
}


def activation_function(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Return the activation function of the given name."""
    check_choice("activation", activation, get_args(Activation))
    return _FUNCTIONS[activation]

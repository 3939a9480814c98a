"""Sums over the gradient of a norm's output, found by whoever makes that gradient."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Channels = Float[Tensor, " channels"]


class HandedSums:
    """Gradients of a norm's weight and bias, for the norm that a gradient goes to.

    Args:
        grad: The gradient that they were found with.
        d_weight: That of the weight.
        d_bias: That of the bias.
    """

    def __init__(
        self, grad: Float[Tensor, "rows channels"], d_weight: Channels, d_bias: Channels
    ) -> None:
        # Held, so that its memory is nobody else's, nor changed by autograd.
        self._grad, self._version = grad.detach(), grad._version
        self._sums = d_weight, d_bias

    def of(self, grad: Float[Tensor, "rows channels"]) -> tuple[Channels, Channels] | None:
        """Return both if they are those of this gradient; None where autograd has added others."""
        is_same = grad.data_ptr() == self._grad.data_ptr() and grad.shape == self._grad.shape
        if not is_same or grad._version != self._version:
            return None
        if grad.is_cuda:
            # Autograd makes this stream wait for the one that made the gradient, but knows of no
            # other tensors from there.
            for each in self._sums:
                each.record_stream(torch.cuda.current_stream())
        return self._sums


def taker_of(x: Tensor) -> Any:
    """Return the norm that made these rows, if it takes sums: a node of the autograd graph.

    It has `saved_tensors` (mean and 1 / deviation, what is normalised, weight, bias, seed, number
    of real rows), `settings` (activation, rate and site of the dropout) and a place for the
    `handed` sums.
    """
    return x.grad_fn if hasattr(x.grad_fn, "handed") else None

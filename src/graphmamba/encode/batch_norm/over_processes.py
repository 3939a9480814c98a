"""A sum over all processes of a run, in a way that gradients can go back."""

from typing import Any

import torch
from torch import Tensor, distributed


class SumOverProcesses(torch.autograd.Function):
    """Equal bits in every process; all of them have to ask for it, and for its gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        """Add up the values of all processes."""
        total = values.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        """Add up the gradients: the total of each process depends on the values of all."""
        return SumOverProcesses.apply(grad)

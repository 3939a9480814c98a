"""A sum over all processes of a run, in a way that gradients can go back."""

from typing import Any

import torch
from torch import Tensor, distributed


def sum_over_processes(values: Tensor) -> Tensor:
    """Add up the values of all processes, which have to ask for it and for its gradient together.

    Every process gets the same bits.
    """
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        # the total of each process depends on the values of all
        return sum_over_processes(grad)

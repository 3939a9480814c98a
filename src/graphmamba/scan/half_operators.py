"""Operators of which one gradient is written into memory that it shares with another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmamba.operators import add_operator
from graphmamba.scan.halves import Halves
from graphmamba.scan.operators import Operation, backward_of, empty_gradients


@dataclass(frozen=True)
class HalfOperator:
    """An operator, and that of its gradients which writes one of them where it is told to."""

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: torch._ops.OpOverload
    count: int
    """Leaves of the operation."""
    leaf: int
    """The one whose gradient shares memory."""
    half: int
    """Which half is its own."""

    def __call__(self, halves: Halves, *arguments: Any) -> Tensor:
        """Run it; the arguments behind `halves` are those of the operation."""
        out: Tensor = _OnHalf.apply(self, halves, *arguments)  # type: ignore[no-untyped-call]
        return out


def register_half(
    operation: Operation,
    backend: str,
    forward: Callable[..., tuple[Tensor, Tensor]],
    *,
    leaf: int,
    half: int,
) -> HalfOperator:
    """Define the operator of such gradients, beside those that `register` defined.

    Args:
        operation: Its `backward` must know `into`, the memory of the gradient of `leaf`.
        backend: Its backend.
        forward: What `register` returned for both.
        leaf: Number of the leaf, a matrix.
        half: Which half of the rows it is: 0 or 1.
    """
    count, find = len(operation.leaves), backward_of(operation, backend)

    def compute(into: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        return _without(leaf, find(*arguments, into=into))

    def fake(into: Tensor, grad: Tensor, kept: Tensor, *arguments: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
        return _without(leaf, empty_gradients(grad, arguments[:count]))

    gradients = ", ".join(["Tensor"] * (count - 1))
    backward = add_operator(
        f"{operation.name}_{backend}_backward_into(Tensor(a!) into, Tensor grad, Tensor kept, "
        f"{operation.arguments}) -> ({gradients})",
        compute,
        fake,
    )
    return HalfOperator(forward, backward, count, leaf, half)


def _without(leaf: int, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return gradients[:leaf] + gradients[leaf + 1 :]


class _OnHalf(torch.autograd.Function):
    """The operator with its gradients; given itself, the shared memory, and its arguments."""

    @staticmethod
    def forward(ctx: Any, operator: HalfOperator, halves: Halves, *arguments: Any) -> Tensor:
        """Run the kernels."""
        out, kept = operator.forward(*arguments)
        tensors, ctx.settings = arguments[: operator.count + 2], arguments[operator.count + 2 :]
        ctx.operator, ctx.halves = operator, halves
        ctx.save_for_backward(kept, *tensors)
        result: Tensor = out
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Run those of the backward pass."""
        operator = ctx.operator
        kept, *tensors = ctx.saved_tensors
        into = ctx.halves.take(operator.half, tensors[operator.leaf])
        others = operator.backward(into, grad, kept, *tensors, *ctx.settings)
        found = (*others[: operator.leaf], into, *others[operator.leaf :])
        pairs = zip(tensors[: operator.count], found, strict=True)
        gradients = (None if leaf is None else own for leaf, own in pairs)
        return None, None, *gradients, *[None] * (2 + len(ctx.settings))

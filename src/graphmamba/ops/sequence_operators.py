"""Turns the functions of a backend into operators that PyTorch differentiates, traces, exports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from graphmamba.ops.operators import add_gradients, add_operator, as_dense, refuse_twice


@dataclass(frozen=True)
class Operation:
    """What the backends of an operation share; arguments are leaves, cu_seqlens, order, settings.

    Each function takes the backend's module first and then the arguments.
    """

    name: str
    leaves: tuple[str, ...]
    """The differentiable arguments, as a schema writes them."""
    settings: tuple[str, ...]
    """The arguments that are no tensors, likewise."""
    forward: Callable[..., tuple[Tensor, Tensor]]
    """Output, and what the backward pass starts from."""
    backward: Callable[..., Sequence[Tensor]]
    """Gradients of the leaves, from (backend, grad, kept, *arguments)."""
    shapes: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]
    """Shapes of what `forward` returns."""

    @property
    def arguments(self) -> str:
        """The arguments of the schema."""
        return ", ".join((*self.leaves, "Tensor cu_seqlens", "Tensor? order", *self.settings))


def register(operation: Operation, backend: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Define the operator of a backend and that of its gradients; return the former."""
    name, arguments = f"{operation.name}_{backend}", operation.arguments
    gradients = ", ".join(["Tensor"] * len(operation.leaves))
    forward = add_operator(
        f"{name}({arguments}) -> (Tensor, Tensor)", *_forward_functions(operation, backend)
    )
    backward = add_operator(
        f"{name}_backward(Tensor grad, Tensor kept, {arguments}) -> ({gradients})",
        backward_of(operation, backend),
        partial(_fake_backward, len(operation.leaves)),
    )
    _differentiate(forward, backward, len(operation.leaves))
    return forward


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether a gradient will be asked for."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _forward_functions(
    operation: Operation, backend: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def compute(*arguments: Any) -> tuple[Tensor, Tensor]:
        with torch.cuda.device_of(arguments[0]):
            return operation.forward(_module(operation, backend), *as_dense(arguments))

    def fake(*arguments: Any) -> tuple[Tensor, Tensor]:
        first = arguments[0]
        out, kept = operation.shapes(_module(operation, backend), *arguments)
        exact = torch.promote_types(first.dtype, torch.float32)
        return first.new_empty(out), first.new_empty(kept, dtype=exact)

    return compute, fake


def backward_of(operation: Operation, backend: str) -> Callable[..., tuple[Tensor, ...]]:
    """Return what finds the gradients of all leaves; empty for what is absent."""
    count = len(operation.leaves)

    def compute(grad: Tensor, kept: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        with torch.cuda.device_of(grad):
            grad, kept, *rest = as_dense((grad, kept, *arguments))
            found = operation.backward(_module(operation, backend), grad, kept, *rest)
        pairs = zip(arguments[:count], found, strict=True)
        return tuple(grad.new_empty(0) if leaf is None else own for leaf, own in pairs)

    return compute


def empty_gradients(grad: Tensor, leaves: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Return tensors of the shapes of the gradients."""
    return tuple(
        grad.new_empty(0) if leaf is None else leaf.new_empty(leaf.shape) for leaf in leaves
    )


def _fake_backward(
    count: int,
    grad: Tensor,
    kept: Tensor,  # noqa: ARG001 - nothing like it
    *arguments: Any,
) -> tuple[Tensor, ...]:
    return empty_gradients(grad, arguments[:count])


def _differentiate(
    forward: torch._ops.OpOverload, backward: torch._ops.OpOverload, count: int
) -> None:
    def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        tensors, ctx.settings = inputs[: count + 2], inputs[count + 2 :]
        ctx.mark_non_differentiable(output[1])
        # Else a tensor of zeros as large as what is kept would be made to be its gradient.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], *tensors)

    def differentiate(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        kept, *tensors = ctx.saved_tensors
        if grad is None:
            return (None,) * (len(tensors) + len(ctx.settings))
        found = backward(grad, kept, *tensors, *ctx.settings)
        pairs = zip(tensors[:count], found, strict=True)
        gradients = tuple(None if leaf is None else own for leaf, own in pairs)
        return gradients + (None,) * (2 + len(ctx.settings))

    add_gradients(forward, differentiate, set_up)
    refuse_twice(forward, backward)


def _module(operation: Operation, backend: str) -> ModuleType:
    # Here and not at the top, so that only the backend that runs has to be installed.
    return import_module(f"graphmamba.ops.{operation.name}.{backend}")

"""Own operators of PyTorch, so that it can trace, export and count what kernels compute."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._library import autograd
from torch.autograd import forward_ad

NAMESPACE = "graphmamba"

LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
"""Operators live as long as the library that defines them."""


def add_operator(
    schema: str, compute: Callable[..., Any], fake: Callable[..., Any]
) -> torch._ops.OpOverload:
    """Define an operator and return it.

    Args:
        schema: Its name, arguments and results.
        compute: Its function, on every device.
        fake: Returns empty tensors of the shapes that `compute` returns.
    """
    name = LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


def add_gradients(
    operator: torch._ops.OpOverload,
    backward: Callable[..., Any],
    set_up: Callable[..., None] | None = None,
) -> None:
    """Give an operator its gradients, as `torch.library.register_autograd` does.

    What that registers drops the tangents of forward-mode differentiation without a word, and
    offers no place to say so: here they are refused before.

    Args:
        operator: What `add_operator` returned.
        backward: Gradients of its arguments, from a context and those of its results.
        set_up: Keeps in the context what `backward` reads.
    """
    kernel = autograd.make_autograd_impl(operator, autograd.Info(backward, set_up))

    def run(keys: Any, *arguments: Any) -> Any:
        # The level spares a look at each tensor wherever nobody differentiates in forward mode.
        if forward_ad._current_level >= 0 and any(map(_has_tangent, arguments)):
            raise NotImplementedError(
                f"{operator.name()} has no derivative in forward mode, got a tangent: "
                "differentiate it by backward() or torch.autograd.grad"
            )
        # PyTorch would speak of `setup_context`, which is nothing that a caller can mend.
        if torch._C._are_functorch_transforms_active() and torch._C._any_requires_grad(*arguments):
            raise NotImplementedError(
                f"{operator.name()} has no derivative inside of torch.func.grad, vjp or jacrev: "
                "differentiate it by backward() or torch.autograd.grad"
            )
        return kernel(keys, *arguments)

    LIBRARY.impl(operator, run, "Autograd", with_keyset=True)


def _has_tangent(argument: object) -> bool:
    return isinstance(argument, Tensor) and forward_ad.unpack_dual(argument).tangent is not None


def refuse_twice(forward: torch._ops.OpOverload, backward: torch._ops.OpOverload) -> None:
    """Let nobody differentiate the gradients."""

    def refuse(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError(f"{forward.name()} can be differentiated only once")

    add_gradients(backward, refuse)


def as_dense(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, with the numbers of each row side by side.

    Compilers may change how a tensor lies in memory; gradients may come as one number, expanded.
    """
    return [
        x.contiguous() if isinstance(x, Tensor) and x.dim() > 0 and x.stride(-1) != 1 else x
        for x in arguments
    ]


def either(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Some tensor for the place of one that is not there: kernels want a pointer, and read none."""
    return other if tensor is None else tensor

"""Own operators of PyTorch, so that it can trace, export and count what kernels compute."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

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


def refuse_twice(forward: torch._ops.OpOverload, backward: torch._ops.OpOverload) -> None:
    """Let nobody differentiate the gradients."""

    def refuse(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError(f"{forward.name()} can be differentiated only once")

    torch.library.register_autograd(backward.name(), refuse, lib=LIBRARY)


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

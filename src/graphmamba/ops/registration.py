"""Registers the functions of a backend as `torch.library` operators with gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

NAMESPACE = "graphmamba"

LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")  # its operators live as long as it does
Operator = Any  # an overload of an operator, whose class is private in PyTorch


def add_operator(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> Operator:
    """Define an operator and return it.

    Args:
        schema: Name, arguments and results.
        compute: Implementation for all devices.
        fake: Returns empty tensors of the shapes and types that `compute` returns.
    """
    name = LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    operator: Operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


def add_gradients(
    operator: Operator,
    backward: Callable[..., Any],
    set_up: Callable[..., None] | None = None,
) -> None:
    """Register the backward function of an operator; `set_up` saves what it reads."""
    torch.library.register_autograd(operator, backward, setup_context=set_up, lib=LIBRARY)


def reject_second_derivative(forward: Operator, backward: Operator) -> None:
    """Make the second derivative of an operator raise."""

    def reject(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError(f"{forward.name()} can be differentiated only once")

    add_gradients(backward, reject)


def reject_tangents(name: str, *arguments: Tensor | None) -> None:
    """Reject forward-mode differentiation: an operator would silently drop the tangents."""
    if torch.compiler.is_compiling():
        return
    for each in arguments:
        if each is not None and forward_ad.unpack_dual(each).tangent is not None:
            raise NotImplementedError(
                f"{name} has no derivative in forward mode, got a tangent: "
                "differentiate it by backward() or torch.autograd.grad, or pass backend='reference'"
            )


def as_dense(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments, made contiguous along the last axis, as kernels read them.

    Gradients may be expanded scalars, and compilers may change strides.
    """
    return [
        x.contiguous() if isinstance(x, Tensor) and x.dim() > 0 and x.stride(-1) != 1 else x
        for x in arguments
    ]


def either(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Return `tensor`, or `other` as a placeholder pointer that the kernel does not read."""
    return other if tensor is None else tensor


def launcher(module: str, function: str) -> Callable[..., Any]:
    """Return a function that calls `function` of the module `ops.<module>`.

    It switches to the device of the first argument and makes rows dense. The module is imported at
    the first call, so that a backend needs to be installed only if it runs.
    """

    def compute(*arguments: Any) -> Any:
        with torch.cuda.device_of(arguments[0]):
            launch = getattr(import_module(f"graphmamba.ops.{module}"), function)
            return launch(*as_dense(arguments))

    return compute


@dataclass(frozen=True)
class SequenceOperator:
    """An operator on packed sequences, with arguments (leaves, cu_seqlens, order, settings).

    The module of a backend has `forward(*arguments)`, which returns the output and a tensor that
    is saved, and `backward(grad, saved, *arguments)`, which returns the gradients of the leaves.

    Args:
        name: Name of the operator and of its folder in `ops`.
        leaves: Schemas of the differentiable arguments.
        settings: Schemas of the arguments that are not tensors.
        shapes: Maps the module of a backend and all arguments to the shapes that `forward` returns.
    """

    name: str
    leaves: tuple[str, ...]
    settings: tuple[str, ...]
    shapes: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]

    def register(self, backend: str) -> Operator:
        """Define the forward and backward operators of a backend; return the forward one."""
        name, count = f"{self.name}_{backend}", len(self.leaves)
        arguments = ", ".join((*self.leaves, "Tensor cu_seqlens", "Tensor? order", *self.settings))

        module = f"{self.name}.{backend}"
        launch_backward = launcher(module, "backward")

        def fake(*arguments: Any) -> tuple[Tensor, Tensor]:
            first = arguments[0]
            out, kept = self.shapes(import_module(f"graphmamba.ops.{module}"), *arguments)
            exact = torch.promote_types(first.dtype, torch.float32)
            return first.new_empty(out), first.new_empty(kept, dtype=exact)

        def compute_gradients(grad: Tensor, kept: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
            gradients = launch_backward(grad, kept, *arguments)
            pairs = zip(arguments[:count], gradients, strict=True)
            return tuple(grad.new_empty(0) if leaf is None else d_leaf for leaf, d_leaf in pairs)

        def fake_gradients(grad: Tensor, kept: Tensor, *arguments: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
            return tuple(
                grad.new_empty(0) if leaf is None else leaf.new_empty(leaf.shape)
                for leaf in arguments[:count]
            )

        def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
            tensors, ctx.settings = inputs[: count + 2], inputs[count + 2 :]
            ctx.mark_non_differentiable(output[1])
            # Else autograd would allocate zeros as the gradient of the saved tensor.
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(output[1], *tensors)

        def differentiate(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
            kept, *tensors = ctx.saved_tensors
            if grad is None:
                return (None,) * (len(tensors) + len(ctx.settings))
            computed = backward(grad, kept, *tensors, *ctx.settings)
            pairs = zip(tensors[:count], computed, strict=True)
            gradients = tuple(None if leaf is None else d_leaf for leaf, d_leaf in pairs)
            return gradients + (None,) * (2 + len(ctx.settings))

        forward = add_operator(
            f"{name}({arguments}) -> (Tensor, Tensor)", launcher(module, "forward"), fake
        )
        gradients = ", ".join(["Tensor"] * count)
        backward = add_operator(
            f"{name}_backward(Tensor grad, Tensor kept, {arguments}) -> ({gradients})",
            compute_gradients,
            fake_gradients,
        )
        add_gradients(forward, differentiate, set_up)
        reject_second_derivative(forward, backward)
        return forward

"""Turns the functions of a backend into operators that PyTorch differentiates, traces, exports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

NAMESPACE = "graphmamba"

LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
"""Operators live as long as the library that defines them."""

Operator = Any
"""One overload of an operator, whose class PyTorch keeps private."""


def add_operator(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> Operator:
    """Define an operator and return it.

    Args:
        schema: Its name, arguments and results.
        compute: Its function, on every device.
        fake: Returns empty tensors of the shapes that `compute` returns.
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
    """Give an operator its gradients.

    Args:
        operator: What `add_operator` returned.
        backward: Gradients of its arguments, from a context and those of its results.
        set_up: Keeps in the context what `backward` reads.
    """
    torch.library.register_autograd(operator, backward, setup_context=set_up, lib=LIBRARY)


def reject_second_derivative(forward: Operator, backward: Operator) -> None:
    """Let nobody differentiate the gradients."""

    def reject(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError(f"{forward.name()} can be differentiated only once")

    add_gradients(backward, reject)


def reject_tangents(name: str, *arguments: Tensor | None) -> None:
    """Reject forward-mode differentiation, whose tangents an operator would drop silently."""
    if torch.compiler.is_compiling():
        return
    for each in arguments:
        if each is not None and forward_ad.unpack_dual(each).tangent is not None:
            raise NotImplementedError(
                f"{name} has no derivative in forward mode, got a tangent: "
                "differentiate it by backward() or torch.autograd.grad, or pass backend='reference'"
            )


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


def launcher(module: str, function: str) -> Callable[..., Any]:
    """A function of a module in `ops`, on the device of its first argument, with dense rows.

    The module is imported by the first call, so that only the backend that runs has to be
    installed.
    """

    def compute(*arguments: Any) -> Any:
        with torch.cuda.device_of(arguments[0]):
            found = getattr(import_module(f"graphmamba.ops.{module}"), function)
            return found(*as_dense(arguments))

    return compute


@dataclass(frozen=True)
class SequenceOperator:
    """What the backends of an operator on sequences share.

    Its arguments are the leaves, `cu_seqlens`, `order` and the settings. A backend's module has
    `forward`, which returns the output and what is kept for `backward`, and `backward`, which takes
    the output's gradient, what was kept and all arguments, and returns the gradients of the leaves.
    """

    name: str
    leaves: tuple[str, ...]
    """The differentiable arguments, as a schema writes them."""
    settings: tuple[str, ...]
    """The arguments that are no tensors, likewise."""
    shapes: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]
    """Shapes of what `forward` returns, from the backend's module and all arguments."""

    def register(self, backend: str) -> Operator:
        """Define the operator of a backend and that of its gradients; return the former."""
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
            found = launch_backward(grad, kept, *arguments)
            pairs = zip(arguments[:count], found, strict=True)
            return tuple(grad.new_empty(0) if leaf is None else own for leaf, own in pairs)

        def fake_gradients(grad: Tensor, kept: Tensor, *arguments: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
            return tuple(
                grad.new_empty(0) if leaf is None else leaf.new_empty(leaf.shape)
                for leaf in arguments[:count]
            )

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

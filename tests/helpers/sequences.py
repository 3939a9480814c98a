"""Calls of operators on packed sequences: their numbers, and the rule that they are held to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from graphmamba.ops.backends import Backend
from tests.helpers.agreement import Results, assert_as_exact, max_error

Order = Literal["none", "repeated", "permutation", "samples"]
ORDERS: list[Order] = ["none", "repeated", "permutation", "samples"]


@dataclass(frozen=True)
class Call:
    """All arguments of an operator; `grad` is the gradient of the output."""

    operator: Callable[..., Tensor]
    inputs: dict[str, Tensor | None]
    cu_seqlens: Tensor
    order: Tensor | None
    flags: dict[str, Any]
    grad: Tensor

    def to(self, dtype: torch.dtype) -> "Call":
        inputs = {name: None if x is None else x.to(dtype) for name, x in self.inputs.items()}
        return replace(self, inputs=inputs, grad=self.grad.to(dtype))

    def leaves(self, device: str = "cpu") -> dict[str, Tensor | None]:
        return {
            name: None if x is None else x.detach().to(device, copy=True).requires_grad_()
            for name, x in self.inputs.items()
        }

    def settings(self, device: str = "cpu") -> dict[str, Any]:
        order = None if self.order is None else self.order.to(device)
        return {"cu_seqlens": self.cu_seqlens.to(device), "order": order, **self.flags}


def boundaries_of(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def draw_order(order: Order, steps: int, rows: int, generator: torch.Generator) -> Tensor | None:
    """Row or slot of each step; some in 32 bits."""
    if order == "none":
        return None
    if order == "repeated":
        return torch.randint(rows, (steps,), generator=generator)
    drawn = torch.randperm(steps, generator=generator)
    return drawn.int() if order == "permutation" else drawn


def run(call: Call, backend: Backend = "auto", device: str = "cpu") -> Results:
    """Output and gradients."""
    leaves = call.leaves(device)
    y = call.operator(**leaves, **call.settings(device), backend=backend, check=True)
    y.backward(call.grad.to(y))
    found = {"y": y.detach()}
    for name, x in leaves.items():
        if x is not None:
            found[name] = torch.zeros_like(x) if x.grad is None else x.grad
    return {name: value.cpu() for name, value in found.items()}


def assert_right(call: Call, backend: Backend = "auto", device: str = "cpu") -> None:
    single, truth = call.to(torch.float32), run(call, "reference")
    assert_as_exact(run(single, backend, device), run(single, "reference"), truth)
    if backend != "triton" and device == "cpu":
        for name, value in run(call).items():
            largest = max(1, float(truth[name].abs().max())) if truth[name].numel() else 1
            assert max_error(value, truth[name]) <= 1e-10 * largest, name

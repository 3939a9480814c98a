"""Random calls of the causal convolution, and what the definition makes of them."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from graphmamba.ops.causal_conv1d.reference import causal_conv1d
from tests.helpers.agreement import Results

Order = Literal["none", "repeated", "permutation", "samples"]


@dataclass(frozen=True)
class Call:
    """All arguments; `grad` is the gradient of the output."""

    lengths: tuple[int, ...]
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    order: Tensor | None
    permutation: bool
    activation: bool
    reverse: bool
    grad: Tensor

    @property
    def cu_seqlens(self) -> Tensor:
        return torch.tensor([0, *self.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)

    def to(self, dtype: torch.dtype) -> "Call":
        reals = {"x": self.x, "weight": self.weight, "bias": self.bias, "grad": self.grad}
        converted = {name: None if t is None else t.to(dtype) for name, t in reals.items()}
        return replace(self, **converted)


def draw(
    lengths: tuple[int, ...],
    inner: int = 52,
    width: int = 4,
    order: Order = "none",
    *,
    has_bias: bool = True,
    activation: bool = True,
    reverse: bool = False,
    seed: int = 0,
) -> Call:
    generator = torch.Generator().manual_seed(seed)
    steps = sum(lengths)
    rows = {"samples": steps // 3, "repeated": steps // 2 + 1}.get(order, steps)

    def normal(*shape: int) -> Tensor:
        return 0.5 * torch.randn(shape, generator=generator).double()

    visited = None
    if order == "repeated":
        visited = torch.randint(rows, (steps,), generator=generator)
    elif order != "none":
        visited = torch.randperm(steps, generator=generator).int()
    return Call(
        lengths=lengths,
        x=normal(rows, inner),
        weight=normal(inner, width),
        bias=normal(inner) if has_bias else None,
        order=visited,
        permutation=order in {"permutation", "samples"},
        activation=activation,
        reverse=reverse,
        grad=normal(steps, inner),
    )


def by_reference(call: Call) -> Results:
    reals = {"x": call.x, "weight": call.weight, "bias": call.bias}
    leaves = {name: t.clone().requires_grad_() for name, t in reals.items() if t is not None}
    y = causal_conv1d(
        **leaves,
        cu_seqlens=call.cu_seqlens,
        order=call.order,
        activation=call.activation,
        reverse=call.reverse,
    )
    y.backward(call.grad)
    return {"y": y.detach(), **{name: leaf.grad for name, leaf in leaves.items()}}

"""Random calls of the selective scan, and what the definition makes of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from graphmamba.ops.options import Discretization
from graphmamba.ops.selective_scan.reference import selective_scan
from tests.helpers.agreement import Results

Order = Literal["none", "repeated", "permutation", "samples"]
NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")


@dataclass(frozen=True)
class Case:
    """Everything that decides a call, but for the numbers."""

    lengths: tuple[int, ...]
    inner: int = 48
    state: int = 5
    absent: tuple[str, ...] = ()
    order: Order = "none"
    discretization: Discretization = "euler"
    softplus: bool = True
    reverse: bool = False
    is_log: bool = False

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    @property
    def scatter(self) -> bool:
        return self.order in {"permutation", "samples"}

    @property
    def rows(self) -> int:
        return self.steps // 3 if self.order == "samples" else self.steps

    @property
    def cu_seqlens(self) -> Tensor:
        return torch.tensor([0, *self.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


@dataclass(frozen=True)
class Call:
    """A case with its numbers: the inputs, the gradient of the output, and the order."""

    case: Case
    inputs: dict[str, Tensor | None]
    grad: Tensor
    order: Tensor | None

    def to(self, dtype: torch.dtype) -> "Call":
        inputs = {name: None if x is None else x.to(dtype) for name, x in self.inputs.items()}
        return replace(self, inputs=inputs, grad=self.grad.to(dtype))


def draw(case: Case, seed: int = 0) -> Call:
    """Numbers of the order of one, for which the rule's 1e-6 is meant."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return 0.5 * torch.randn(shape, generator=generator).double()

    inner, state, steps = case.inner, case.state, case.steps
    A = -(0.5 + torch.rand((inner, state), generator=generator) * state).double()
    inputs = {
        "u": normal(steps, inner),
        "delta": normal(steps, inner) - 1 if case.softplus else 0.4 * normal(steps, inner).abs(),
        "A": torch.log(-A) if case.is_log else A,
        "B": normal(steps, state),
        "C": normal(steps, state),
        "D": normal(inner),
        "z": normal(case.rows, inner),
        "delta_bias": normal(inner) if case.softplus else 0.2 * normal(inner).abs(),
    }
    orders: dict[str, Callable[[], Tensor | None]] = {
        "none": lambda: None,
        "repeated": lambda: torch.randint(case.rows, (steps,), generator=generator),
        "permutation": lambda: torch.randperm(steps, generator=generator).int(),
        "samples": lambda: torch.randperm(steps, generator=generator),
    }
    present = {name: None if name in case.absent else x for name, x in inputs.items()}
    # Rounded here, so that the truth starts from the same numbers as what it judges.
    exact = {name: None if x is None else x.float().double() for name, x in present.items()}
    return Call(case, exact, normal(steps, inner), orders[case.order]())


def by_reference(call: Call) -> Results:
    inputs = {
        name: None if x is None else x.clone().requires_grad_() for name, x in call.inputs.items()
    }
    y = selective_scan(
        **inputs,
        cu_seqlens=call.case.cu_seqlens,
        order=call.order,
        scatter=call.case.scatter,
        softplus=call.case.softplus,
        discretization=call.case.discretization,
        reverse=call.case.reverse,
        log_A=call.case.is_log,
    )
    y.backward(call.grad)
    given_inputs = {name: x for name, x in inputs.items() if x is not None}
    gradients = {
        name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in given_inputs.items()
    }
    return {"y": y.detach(), **gradients}

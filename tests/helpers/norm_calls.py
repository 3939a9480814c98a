"""Random calls of the batch norm with its neighbours, and what each form makes of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmamba.ops.activation import Activation
from graphmamba.ops.batch_norm import Drop, Running, batch_norm_act
from tests.helpers.agreement import Results


@dataclass(frozen=True)
class Case:
    """Everything that decides a call, but for the numbers."""

    rows: int
    channels: int = 5
    has_before: bool = False
    has_after: bool = False
    activation: Activation = "none"
    rates: tuple[float, float] = (0.0, 0.0)
    count: int | None = None
    is_training: bool = True
    shift: float = 0.0
    """Mean of the rows in standard deviations, which costs digits."""


SMALL = {
    "bare": Case(70),
    "message passing": Case(70, 35, has_after=True, activation="relu", rates=(0.0, 0.3)),
    "layer": Case(140, 3, has_before=True, rates=(0.2, 0.0)),
    "everything": Case(131, 33, True, True, "gelu", (0.1, 0.5), count=100),
    "without drops": Case(66, 4, True, True, "relu", count=65),
    "evaluation": Case(70, 4, True, True, "relu", is_training=False),
    "evaluation with padding graphs": Case(70, 4, False, True, "gelu", count=3, is_training=False),
    "far from zero": Case(200, 3, shift=300.0, count=150),
    "two rows": Case(2, 4, activation="relu"),
    "one row": Case(1, 4, has_after=True),
    "one real row": Case(70, 4, True, True, count=1),
    "padding graphs alone": Case(70, 4, True, True, "relu", count=0),
    "no rows": Case(0, 4, has_before=True, rates=(0.5, 0.5)),
    "several programs": Case(300, 3, has_after=True, activation="relu", count=260),
}
LARGE = {
    "nodes": Case(21_000, 96, has_before=True, has_after=True, rates=(0.1, 0.0), count=20_001),
    "edges": Case(195_000, 64, has_after=True, activation="relu", rates=(0.0, 0.1)),
    "far": Case(43_000, 96, has_after=True, activation="relu", shift=100.0),
}


def draw(case: Case, seed: int = 0) -> dict[str, Tensor]:
    """Numbers of the order of one, poisoned where nobody may look."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        # Rounded here, so that the truth starts from the same numbers as what it judges.
        return torch.randn(shape, generator=generator).double().float().double()

    shape = case.rows, case.channels
    drawn = {
        "x": normal(*shape) + case.shift,
        "weight": 1 + 0.3 * normal(case.channels),
        "bias": 0.3 * normal(case.channels),
        "before": normal(*shape),
        "after": normal(*shape),
        "grad": normal(*shape),
        "mean": 0.2 * normal(case.channels),
        "variance": 1 + 0.5 * normal(case.channels).abs(),
    }
    drawn = {name: values.float().double() for name, values in drawn.items()}
    if case.count is not None:
        for name in ("x", "before"):
            drawn[name][case.count :] = torch.nan
    return drawn


def compute(
    case: Case, backend: str, dtype: torch.dtype, device: str = "cpu", seed: int = 0
) -> Results:
    """Output, gradients of all inputs, and what the running statistics become."""
    drawn = {name: values.to(device, dtype) for name, values in draw(case, seed).items()}
    grad, mean, variance = (drawn.pop(name) for name in ("grad", "mean", "variance"))
    if not case.has_before:
        del drawn["before"]
    if not case.has_after:
        del drawn["after"]
    running = Running(mean, variance, torch.tensor(3, device=device), momentum=0.3)
    leaves = {name: values.requires_grad_() for name, values in drawn.items()}
    key = torch.tensor(-123456789123456789, device=device)
    out = batch_norm_act(
        **leaves,
        running=running,
        activation=case.activation,
        drop_before=Drop(case.rates[0], key, 6),
        drop_after=Drop(case.rates[1], key, 7),
        is_training=case.is_training,
        count=None if case.count is None else torch.tensor(case.count, device=device),
        backend=backend,
    )
    out.backward(grad)
    gradients = {f"d_{name}": values.grad for name, values in leaves.items()}
    found = {
        "y": out.detach(), **gradients, "mean": mean, "variance": variance,
        "batches": running.batches,
    }  # fmt: skip
    assert all(each is not None for each in found.values())
    return {name: values.cpu() for name, values in found.items()}

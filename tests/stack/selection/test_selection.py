"""The fused selection, held to the products of PyTorch."""

import pytest
import torch
from torch import Tensor

from graphmamba.stack.selection import select
from tests.helpers.processes import only_interpreted, run_apart

SHAPES = ((70, 24, 16, 2), (33, 96, 16, 6), (1, 5, 4, 1), (0, 8, 16, 1), (130, 40, 32, 16))
"""Rows, channels, states, rank."""


def results(
    rows: int, inner: int, state: int, rank: int, device: str, dtype: torch.dtype, backend: str
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rows)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype).requires_grad_()

    u, weight, step = draw(rows, inner), draw(rank + 2 * state, inner), draw(inner, rank)
    found = select(u, weight, step, backend=backend)  # type: ignore[arg-type]
    parts = {"u": found.u, "delta": found.delta, "B": found.B, "C": found.C}
    loss = sum((each * draw(*each.shape).detach()).sum() for each in parts.values())
    assert isinstance(loss, Tensor)
    loss.backward()
    assert torch.equal(found.delta_again(), found.delta)
    leaves = {"du": u.grad, "d_weight": weight.grad, "d_step": step.grad}
    both = {name: each.detach() for name, each in parts.items()} | leaves
    return {name: each for name, each in both.items() if each is not None}


def assert_fused_is_right(device: str, tolerance: float) -> None:
    for shape in SHAPES:
        truth = results(*shape, device, torch.float64, "reference")
        ours, again = (results(*shape, device, torch.float32, "fused") for _ in range(2))
        assert ours.keys() == truth.keys()
        for name, exact in truth.items():
            error = (ours[name].double() - exact).norm()
            assert error <= tolerance * exact.norm() + 1e-12, (shape, name)
            assert torch.equal(ours[name], again[name])


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.stack.selection.test_selection import *\nassert_fused_is_right('cpu', 2e-6)",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_kernels_are_as_exact_as_tf32() -> None:
    assert_fused_is_right("cuda", 3e-3)


def test_the_parts_come_from_the_rows_of_the_weight_in_order() -> None:
    u = torch.eye(3)
    weight = torch.arange(15.0).view(5, 3)
    found = select(u, weight, torch.tensor([[1.0], [2.0], [3.0]]))
    assert torch.equal(found.delta, weight[0][:, None] * torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(found.B, weight[1:3].T)
    assert torch.equal(found.C, weight[3:].T)

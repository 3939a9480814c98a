"""The fused selection, held to the products of PyTorch."""

import pytest
import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.selection import select
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


def assert_weights_may_lie_apart() -> None:
    """As parts of wider ones, whose rows are further apart than they are long."""
    torch.manual_seed(0)
    u, wide, wide_step = torch.randn(9, 8), torch.randn(10, 13), torch.randn(8, 5)
    found = []
    for backend in ("reference", "fused"):
        leaves = [each.clone().requires_grad_() for each in (u, wide, wide_step)]
        parts = select(leaves[0], leaves[1][:, :8], leaves[2][:, :2], backend=backend)  # type: ignore[arg-type]
        found.append([parts.delta, parts.B, parts.C])
        loss = sum(each.square().sum() for each in found[-1])
        assert isinstance(loss, Tensor)
        found[-1] += torch.autograd.grad(loss, leaves)
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


def assert_what_nobody_reads_or_wants_costs_no_gradient() -> None:
    torch.manual_seed(0)
    drawn = [torch.randn(*shape) for shape in ((9, 8), (10, 8), (8, 2))]
    for part, frozen in (("delta", 1), ("B", 2), ("C", 0), ("u", 1)):
        found = []
        for backend in ("reference", "fused"):
            leaves = [each.clone().requires_grad_() for each in drawn]
            leaves[frozen].requires_grad_(False)
            read = getattr(select(*leaves, backend=backend), part)  # type: ignore[arg-type]
            read.square().sum().backward()
            assert leaves[frozen].grad is None
            # a weight that has no part in it may get zeros
            found.append([each.grad for each in leaves])
        for plain, ours in zip(*found, strict=True):
            if plain is None:
                assert ours is None or not ours.any()
            else:
                torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


def assert_nothing_is_differentiated_twice() -> None:
    u, weight, step = (torch.randn(*shape) for shape in ((9, 8), (10, 8), (8, 2)))
    delta = select(u.requires_grad_(), weight, step, backend="fused").delta
    (gradient,) = torch.autograd.grad(delta.square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.ops.selection.test_selection import *\n"
        "assert_fused_is_right('cpu', 2e-6)\n"
        "assert_weights_may_lie_apart()\n"
        "assert_what_nobody_reads_or_wants_costs_no_gradient()\n"
        "assert_nothing_is_differentiated_twice()",
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


def test_kernels_for_another_precision_are_refused() -> None:
    u, weight, step = (torch.zeros(*shape).double() for shape in ((2, 3), (5, 3), (3, 1)))
    with pytest.raises(UserError, match=r"'reference' for torch\.float64, got 'fused'"):
        select(u, weight, step, backend="fused")

"""The fused gradients of a linear map, held to PyTorch's."""

from itertools import product

import pytest
import torch
from torch import Tensor

from graphmamba.encode.linear import Linear, linear, linear_through
from graphmamba.errors import UserError
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off

SHAPES = ((70, 38, 20), (33, 6, 130), (5, 150, 16), (1, 3, 2), (0, 4, 8), (1100, 16, 16))
"""Rows, columns that come in, columns that go out."""


def results(
    rows: int, inward: int, out: int, has_bias: bool, device: str, dtype: torch.dtype, backend: str
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    wide = torch.randn(rows, inward + 3, generator=generator)
    weight = torch.randn(out, inward, generator=generator)
    bias, grad = (torch.randn(*shape, generator=generator) for shape in ((out,), (rows, out)))
    leaves = [each.to(device, dtype).requires_grad_() for each in (wide, weight, bias)]
    # rows that do not lie close
    x = leaves[0][:, :inward]
    y = linear(x, leaves[1], leaves[2] if has_bias else None, backend=backend)  # type: ignore[arg-type]
    y.backward(grad.to(device, dtype))
    found = {"y": y.detach(), "x": leaves[0].grad, "weight": leaves[1].grad}
    if has_bias:
        found["bias"] = leaves[2].grad
    return {name: each for name, each in found.items() if each is not None}


def assert_fused_is_right(device: str, tolerance: float) -> None:
    for shape, has_bias in product(SHAPES, (True, False)):
        truth = results(*shape, has_bias, device, torch.float64, "reference")
        ours, again = (
            results(*shape, has_bias, device, torch.float32, "fused") for _ in range(2)
        )  # fmt: skip
        assert ours.keys() == truth.keys()
        for name, exact in truth.items():
            error = (ours[name].double() - exact).norm()
            assert error <= tolerance * exact.norm() + 1e-12, (shape, name)
            assert torch.equal(ours[name], again[name])


def assert_through_is_right(device: str, tolerance: float) -> None:
    for rows, inward, out in ((70, 38, 20), (5, 100, 96), (0, 4, 8)):
        generator = torch.Generator().manual_seed(rows)
        drawn = [
            torch.randn(*shape, generator=generator)
            for shape in ((rows, inward), (out, inward), (out,), (rows, out), (rows, inward))
        ]
        found = []
        for dtype, backend in ((torch.float64, "reference"), (torch.float32, "fused")):
            x, weight, bias, grad, more = (each.to(device, dtype) for each in drawn)
            leaves = [each.requires_grad_() for each in (x, weight, bias)]
            y, again = linear_through(*leaves, backend=backend)  # type: ignore[arg-type]
            torch.autograd.backward([y, again.sin()], [grad, more])
            found.append([y.detach(), *(each.grad for each in leaves)])
        for exact, ours in zip(*found, strict=True):
            assert (ours.double() - exact).norm() <= tolerance * exact.norm() + 1e-12


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.encode.test_linear import *\n"
        "assert_fused_is_right('cpu', 1e-6)\n"
        "assert_through_is_right('cpu', 1e-6)",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_a_bias_alone_is_summed_where_nothing_may_be_rounded() -> None:
    run_apart(
        "from graphmamba.encode.linear import operators\n"
        "from tests.encode.test_linear import *\n"
        "operators.may_round = lambda tensor: False\n"
        "assert_fused_is_right('cpu', 1e-6)",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-3), ("ieee", 1e-6)])
def test_kernels_are_as_exact_as_the_precision(
    precision: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", precision)
    assert_fused_is_right("cuda", tolerance)
    assert_through_is_right("cuda", max(tolerance, 2e-3))


def test_the_module_has_the_parameters_of_pytorchs() -> None:
    torch.manual_seed(0)
    ours = Linear(3, 5)
    torch.manual_seed(0)
    theirs = torch.nn.Linear(3, 5)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(4, 7, 3)
    assert torch.equal(ours(x), theirs(x))


def test_parameters_that_are_frozen_get_no_gradient() -> None:
    layer = Linear(3, 2)
    layer.weight.requires_grad_(False)
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None


def test_an_unknown_backend_is_refused() -> None:
    with typecheck_off(), pytest.raises(UserError, match="backend must be"):
        linear(torch.zeros(1, 2), torch.zeros(3, 2), backend="fast")  # type: ignore[arg-type]

"""The fused gradients of a linear map, held to PyTorch's."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.linear import linear, linear_through
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
    # the last ones are too wide for one program
    for rows, inward, out in ((70, 38, 20), (5, 100, 96), (0, 4, 8), (5, 150, 16), (5, 16, 150)):
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


def assert_only_what_is_wanted_gets_a_gradient() -> None:
    for wanted in product((True, False), repeat=3):
        if not any(wanted):
            continue
        drawn = [torch.randn(*shape) for shape in ((7, 20), (5, 20), (5,))]
        grad, more = torch.randn(7, 5), torch.randn(7, 20)
        found = []
        for backend, is_through in product(("reference", "fused"), (False, True)):
            x, weight, bias = (
                each.clone().requires_grad_(is_wanted)
                for each, is_wanted in zip(drawn, wanted, strict=True)
            )
            if is_through:
                y, again = linear_through(x, weight, bias, backend=backend)  # type: ignore[arg-type]
            else:
                y, again = linear(x, weight, bias, backend=backend), x  # type: ignore[arg-type]
            ((y * grad).sum() + (again * more).sum()).backward()
            found.append([each.grad for each in (x, weight, bias)])
        for gradients in zip(*found, strict=True):
            for each in gradients[1:]:
                assert (each is None) == (gradients[0] is None)
                if each is not None:
                    torch.testing.assert_close(each, gradients[0])


def assert_rows_may_have_any_dimensions() -> None:
    for shape, inward in product(((), (3,), (2, 3), (2, 0, 3)), (4, 20)):
        weight, bias = torch.randn(5, inward), torch.randn(5)
        found = []
        for backend in ("reference", "fused"):
            leaves = [each.requires_grad_() for each in (torch.ones(*shape, inward), weight, bias)]
            y = linear(*leaves, backend=backend)  # type: ignore[arg-type]
            gradients = torch.autograd.grad(y.square().sum(), leaves)
            found.append([y.detach(), *gradients])
        for plain, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, plain)


def assert_nothing_is_differentiated_twice() -> None:
    x, weight = torch.randn(3, 20, requires_grad=True), torch.randn(4, 20, requires_grad=True)
    for y in (linear(x, weight, backend="fused"), linear_through(x, weight, backend="fused")[0]):
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            gradient.sum().backward()


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.ops.test_linear import *\n"
        "assert_fused_is_right('cpu', 1e-6)\n"
        "assert_through_is_right('cpu', 1e-6)\n"
        "assert_only_what_is_wanted_gets_a_gradient()\n"
        "assert_rows_may_have_any_dimensions()\n"
        "assert_nothing_is_differentiated_twice()",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_a_bias_alone_is_summed_where_nothing_may_be_rounded() -> None:
    run_apart(
        "from graphmamba.ops.linear import operators\n"
        "from tests.ops.test_linear import *\n"
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


def test_an_unknown_backend_is_refused() -> None:
    with typecheck_off(), pytest.raises(UserError, match="backend must be"):
        linear(torch.zeros(1, 2), torch.zeros(3, 2), backend="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("door", [linear, linear_through])
@pytest.mark.parametrize(
    ("dtype", "what"), [(torch.float64, "for torch.float64"), (torch.float32, "on cpu")]
)
def test_kernels_are_refused_where_they_cannot_run(
    door: Callable[..., object], dtype: torch.dtype, what: str
) -> None:
    x, weight = torch.zeros(1, 2, dtype=dtype), torch.zeros(3, 2, dtype=dtype)
    with pytest.raises(UserError, match=f"backend must be 'reference' {what}, got 'fused'"):
        door(x, weight, backend="fused")

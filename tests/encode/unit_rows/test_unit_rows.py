"""Rows of length 1 by kernels, held to PyTorch's two calls."""

from itertools import product

import pytest
import torch
from torch import Tensor

from graphmamba.encode.unit_rows import unit_rows
from graphmamba.errors import UserError
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off

SHAPES = ((70, 96), (33, 5), (1, 1), (0, 8), (5, 1100), (130, 64))
"""Rows, channels."""
EXACT = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def drawn(rows: int, channels: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows in a wider tensor, two of them without a positive number, one of zeros; a gradient."""
    generator = torch.Generator().manual_seed(rows)
    wide = torch.randn(rows, channels + 3, generator=generator)
    wide[3:5] = -wide[3:5].abs()
    wide[5:6] = 0.0
    return wide.to(dtype), torch.randn(rows, channels, generator=generator).to(dtype)


def results(
    wide: Tensor, grad: Tensor, has_relu: bool, dtype: torch.dtype, backend: str
) -> dict[str, Tensor]:
    leaf = wide.to(dtype, copy=True).requires_grad_()
    y = unit_rows(leaf[:, : grad.shape[1]], has_relu=has_relu, backend=backend)  # type: ignore[arg-type]
    assert y.dtype == dtype
    y.backward(grad.to(dtype))
    assert leaf.grad is not None
    return {"y": y.detach(), "x": leaf.grad}


def assert_fused_is_right(device: str) -> None:
    for shape, has_relu, (dtype, tolerance) in product(SHAPES, (True, False), EXACT.items()):
        if dtype == torch.float16 and not has_relu:
            # 1e12, the slope of a row of zeros, is no float16
            continue
        wide, grad = (each.to(device) for each in drawn(*shape, dtype))
        truth = results(wide, grad, has_relu, torch.float64, "reference")
        ours, again = (results(wide, grad, has_relu, dtype, "fused") for _ in range(2))
        for name, exact in truth.items():
            assert torch.equal(ours[name], again[name])
            errors = (ours[name].double() - exact).norm(dim=1)
            assert (errors <= tolerance * exact.norm(dim=1) + 1e-5).all(), (shape, name, dtype)


def assert_short_rows_have_the_slope_of_a_fixed_divisor(device: str) -> None:
    """About as long as the least that rows are divided by."""
    for length in (0.0, 1e-13, 0.9e-12, 1.1e-12, 1e-10):
        wide = torch.tensor([[3.0, -4.0, 0.0, 1.0]], device=device) / 26**0.5 * length
        grad = torch.tensor([[1.0, 2.0, -1.0, 0.5]], device=device)
        for has_relu in (True, False):
            plain, ours = (
                results(wide, grad, has_relu, dtype, backend)
                for dtype, backend in ((torch.float64, "reference"), (torch.float32, "fused"))
            )
            for name, exact in plain.items():
                torch.testing.assert_close(ours[name].double(), exact, rtol=1e-5, atol=1e-6)


def assert_what_is_no_number_stays_so(device: str) -> None:
    x = torch.tensor([[1.0, torch.nan], [3.0, 4.0]], device=device)
    for has_relu in (True, False):
        found = results(x.repeat(1, 2), x.nan_to_num(), has_relu, torch.float32, "fused")
        for each in (found["y"], found["x"][:, :2]):
            assert each[0].isnan().all()
            assert each[1].isfinite().all()


def assert_nothing_is_differentiated_twice() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    y = unit_rows(x, backend="fused")
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.encode.unit_rows.test_unit_rows import *\n"
        "assert_fused_is_right('cpu')\n"
        "assert_short_rows_have_the_slope_of_a_fixed_divisor('cpu')\n"
        "assert_what_is_no_number_stays_so('cpu')\n"
        "assert_nothing_is_differentiated_twice()",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_kernels_are_as_exact_as_torch() -> None:
    assert_fused_is_right("cuda")
    assert_short_rows_have_the_slope_of_a_fixed_divisor("cuda")
    assert_what_is_no_number_stays_so("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["reference", "fused"])
def test_autocast_changes_no_type(backend: str) -> None:
    x = torch.randn(4, 8, device="cuda", dtype=torch.bfloat16)
    with torch.autocast("cuda", torch.bfloat16):
        assert unit_rows(x, has_relu=True, backend=backend).dtype == x.dtype  # type: ignore[arg-type]


@pytest.mark.parametrize("has_relu", [True, False])
def test_elsewhere_it_is_what_torch_does(has_relu: bool) -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.relu(x) if has_relu else x
    assert torch.equal(unit_rows(x, has_relu=has_relu), torch.nn.functional.normalize(rows, dim=1))
    assert torch.autograd.gradcheck(lambda x: unit_rows(x, has_relu=has_relu), x)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UserError, match=r"'reference' for torch\.float64, got 'fused'"):
        unit_rows(torch.zeros(2, 3, dtype=torch.float64), backend="fused")
    with typecheck_off(), pytest.raises(UserError, match="backend must be one of"):
        unit_rows(torch.zeros(2, 3), backend="cuda")  # type: ignore[arg-type]

"""A linear map and its ReLU as one operation, held to the two."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphmamba.errors import UserError
from graphmamba.ops.linear.relu import LinearRelu, linear_relu, linear_relu_through
from graphmamba.studies.flops import count_flops
from tests.helpers.processes import only_interpreted, run_apart

SHAPES = ((70, 38, 20), (5, 20, 400), (1, 20, 3), (0, 20, 8), (33, 6, 30))
"""Rows, columns that come in, columns that go out: the second is left to PyTorch's product, and
the last to two operations."""


def results(
    shape: tuple[int, int, int], form: str, dtype: torch.dtype, device: str = "cpu"
) -> list[Tensor]:
    """Output and gradients; `apart` is one operation after the other."""
    rows, inward, out = shape
    generator = torch.Generator().manual_seed(rows)
    sizes = (rows, inward + 3), (out, inward), (out,), (rows, out)
    wide, weight, bias, grad = (
        torch.randn(*size, generator=generator).to(device, dtype) for size in sizes
    )
    leaves = [each.requires_grad_() for each in (wide, weight, bias)]
    # rows that do not lie close
    x = wide[:, :inward]
    if form == "apart":
        y = functional.relu(functional.linear(x, weight, bias))
    else:
        y = linear_relu(x, weight, bias, backend=form)  # type: ignore[arg-type]
    y.backward(grad)
    return [y.detach(), *(each.grad for each in leaves)]


def assert_fused_is_right(device: str, tolerance: float) -> None:
    for shape in SHAPES:
        truth = results(shape, "apart", torch.float64, device)
        ours, again = (results(shape, "fused", torch.float32, device) for _ in range(2))
        for one, exact, repeated in zip(ours, truth, again, strict=True):
            assert (one.double() - exact).norm() <= tolerance * exact.norm() + 1e-12, shape
            assert torch.equal(one, repeated)


def assert_rows_are_handed_on(device: str, tolerance: float) -> None:
    for is_map_used, is_row_used in ((True, True), (True, False), (False, True)):
        generator = torch.Generator().manual_seed(3)
        drawn = [
            torch.randn(*size, generator=generator)
            for size in ((70, 38), (20, 38), (20,), (70, 20), (70, 38))
        ]
        found = []
        for dtype, backend in ((torch.float64, "reference"), (torch.float32, "fused")):
            x, weight, bias, down, up = (each.to(device, dtype) for each in drawn)
            leaves = [each.requires_grad_() for each in (x, weight, bias)]
            y, again = linear_relu_through(*leaves, backend=backend)  # type: ignore[arg-type]
            loss = (y * down).sum() if is_map_used else y.new_zeros(())
            loss = loss + (again.sin() * up).sum() if is_row_used else loss
            loss.backward()
            found.append([each.new_zeros(1) if each.grad is None else each.grad for each in leaves])
        for exact, ours in zip(*found, strict=True):
            assert (ours.double() - exact).norm() <= tolerance * exact.norm() + 1e-12


def assert_only_what_is_wanted_gets_a_gradient() -> None:
    for wanted in product((True, False), repeat=3):
        if not any(wanted):
            continue
        drawn = [torch.randn(*size) for size in ((7, 20), (5, 20), (5,))]
        leaves = [each.requires_grad_(is_wanted) for each, is_wanted in zip(drawn, wanted)]  # noqa: B905
        linear_relu(*leaves, backend="fused").sum().backward()
        assert [each.grad is not None for each in leaves] == list(wanted)


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_two_operations() -> None:
    run_apart(
        "from tests.ops.test_linear_relu import *\n"
        "assert_fused_is_right('cpu', 1e-6)\n"
        "assert_rows_are_handed_on('cpu', 1e-6)\n"
        "assert_only_what_is_wanted_gets_a_gradient()",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-3), ("ieee", 1e-6)])
def test_kernels_are_as_exact_as_the_precision(
    precision: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", precision)
    if precision == "ieee":
        assert_fused_is_right("cuda", tolerance)
        assert_rows_are_handed_on("cuda", tolerance)
        return
    # Rounded products may fall on the other side of the ReLU: held to those of PyTorch.
    for shape in SHAPES:
        plain = results(shape, "reference", torch.float32, "cuda")
        for one, other in zip(results(shape, "fused", torch.float32, "cuda"), plain, strict=True):
            assert (one - other).norm() <= tolerance * other.norm() + 1e-12, shape


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reference_is_one_operation_after_the_other(shape: tuple[int, int, int]) -> None:
    ours, plain = (results(shape, form, torch.float64) for form in ("reference", "apart"))
    for one, other in zip(ours, plain, strict=True):
        assert torch.equal(one, other)


def test_both_forms_cost_the_same() -> None:
    # Wide enough for PyTorch's own product.
    x, weight, bias = torch.randn(5, 20), torch.randn(400, 20), torch.randn(400)
    fused = count_flops(lambda: LinearRelu.apply(x, weight, bias))
    assert fused == count_flops(lambda: linear_relu(x, weight, bias, backend="reference"))


def test_kernels_are_refused_where_they_cannot_run() -> None:
    x, weight = torch.zeros(1, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    with pytest.raises(UserError, match=r"backend must be 'reference' for torch\.float64"):
        linear_relu(x, weight, weight[:, 0], backend="fused")

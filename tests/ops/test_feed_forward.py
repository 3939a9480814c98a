"""Two linear maps and the ReLU between them as one operation, held to the three."""

from collections.abc import Sequence
from itertools import product
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphmamba.errors import UserError
from graphmamba.ops.linear.feed_forward import FeedForward, feed_forward
from graphmamba.ops.linear.relu import linear_relu
from graphmamba.studies.flops import count_flops
from tests.helpers.processes import only_interpreted, run_apart

Sizes = tuple[int, int, int, int]
SHAPES = ((40, 38, 76, 20), (5, 17, 400, 3), (1, 20, 40, 3), (0, 20, 40, 20), (33, 6, 30, 5))
"""Rows, columns that come in, between and out: the second is left to PyTorch's products, and
in the last each map runs by itself."""
LARGE_SHAPES = ((1500, 48, 96, 48), (2000, 96, 192, 96))
"""Rows from which on products are ours on a GPU, whose weights are held, and taken in pieces."""
USES = ((True, True), (True, False), (False, True))
"""Whether what is mapped and the rows themselves are used."""


def drawn(shape: Sizes, device: str, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Rows with some of zeros and both maps; the gradients of both results."""
    rows, inward, wide, out = shape
    generator = torch.Generator().manual_seed(rows)
    sizes = (rows, inward + 3), (wide, inward), (wide,), (out, wide), (out,), (rows, out + 1)
    found = [
        torch.randn(*size, generator=generator).to(device, dtype)
        for size in (*sizes, (rows, inward))
    ]
    found[0][::7], found[5][1::7] = 0, 0
    # weights that keep numbers near 1, and a gradient whose rows do not lie close
    leaves = [found[0], found[1] / inward**0.5, found[2], found[3] / wide**0.5, found[4]]
    return [each.detach().requires_grad_() for each in leaves], [found[5][:, :out], found[6]]


def results(
    shape: Sizes,
    form: str,
    dtype: torch.dtype,
    device: str = "cpu",
    uses: tuple[bool, bool] = (True, True),
    is_let_through: Tensor | None = None,
) -> list[Tensor]:
    """Output and gradients, 0 where there is none; `apart` is one operation after the other.

    The ReLU of that form lets through what is above 0, or what it is told to.
    """
    (whole, *maps), (down, up) = drawn(shape, device, dtype)
    # rows that do not lie close
    x = whole[:, : shape[1]]
    if form == "apart":
        wide = functional.linear(x, *maps[:2])
        wide = wide.relu() if is_let_through is None else wide * is_let_through
        y, again = functional.linear(wide, *maps[2:]), x
    else:
        y, again = feed_forward(x, *maps, backend=form)  # type: ignore[arg-type]
    ends = [
        (end, grad)
        for end, grad, is_used in zip((y, again), (down, up), uses, strict=True)
        if is_used
    ]
    torch.autograd.backward(*zip(*ends, strict=True))
    gradients = [each.new_zeros(()) if each.grad is None else each.grad for each in (whole, *maps)]
    return [y.detach(), *gradients]


def assert_close(ours: list[Tensor], exact: list[Tensor], tolerance: float, case: object) -> None:
    for one, truth in zip(ours, exact, strict=True):
        assert one.shape == truth.shape or not (one.any() or truth.any()), case
        error = (one.double() - truth.double()).norm()
        assert error <= tolerance * truth.double().norm() + 1e-12, case


def assert_fused_is_right(
    device: str, tolerance: float, shapes: Sequence[Sizes] = SHAPES, is_rounded: bool = False
) -> None:
    for case in product(shapes, USES):
        shape, uses = case
        ours = results(shape, "fused", torch.float32, device, uses)
        # Rounded products may fall on the other side of the ReLU.
        through = let_through(shape, device) if is_rounded else None
        truth = results(shape, "apart", torch.float64, device, uses, through)
        assert_close(ours, truth, tolerance, case)


def let_through(shape: Sizes, device: str) -> Tensor:
    (whole, weight, bias, *_), _ = drawn(shape, device, torch.float32)
    return linear_relu(whole[:, : shape[1]], weight, bias, backend="fused") > 0


def assert_repeats_give_the_same_bits(shape: Sizes, device: str) -> None:
    ours, repeated = (results(shape, "fused", torch.float32, device) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(ours, repeated, strict=True))


def assert_only_what_is_wanted_gets_a_gradient() -> None:
    # one alone, or all but one
    for which, is_alone in product(range(5), (True, False)):
        wanted = [(each == which) == is_alone for each in range(5)]
        leaves, _ = drawn((3, 20, 24, 18), "cpu", torch.float32)
        rows = leaves[0][:, :20].detach()
        leaves = [
            each.detach().requires_grad_(is_wanted)
            for each, is_wanted in zip((rows, *leaves[1:]), wanted, strict=True)
        ]
        y, again = feed_forward(*leaves, backend="fused")
        (y.square().sum() + again.sum()).backward()
        assert [each.grad is not None for each in leaves] == wanted


def assert_nothing_is_differentiated_twice() -> None:
    leaves, _ = drawn((3, 20, 24, 18), "cpu", torch.float32)
    x = leaves[0][:, :20]
    y, _ = feed_forward(x, *leaves[1:], backend="fused")
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_three_operations() -> None:
    run_apart(
        "from tests.ops.test_feed_forward import *\n"
        "assert_fused_is_right('cpu', 1e-6)\n"
        "assert_repeats_give_the_same_bits(SHAPES[0], 'cpu')\n"
        "assert_only_what_is_wanted_gets_a_gradient()\n"
        "assert_nothing_is_differentiated_twice()",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_without_rounding_the_products_are_those_of_pytorch() -> None:
    run_apart(
        "from graphmamba.ops.linear import operators\n"
        "from tests.ops.test_feed_forward import *\n"
        "operators.may_round = lambda tensor: False\n"
        "assert_fused_is_right('cpu', 1e-6)",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 5e-3), ("ieee", 2e-6)])
def test_kernels_are_as_exact_as_the_precision(
    precision: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", precision)
    shapes = *SHAPES, *LARGE_SHAPES
    assert_fused_is_right("cuda", tolerance, shapes, is_rounded=True)
    for shape in LARGE_SHAPES:
        assert_repeats_give_the_same_bits(shape, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "is_ours"), [("tf32", True), ("ieee", False)])
def test_the_gradient_is_cut_off_by_its_product_where_that_is_ours(
    precision: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphmamba.ops.linear import product as products

    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", precision)
    with patch.object(products, "relu_grad", side_effect=products.relu_grad) as relu_grad:
        results(LARGE_SHAPES[0], "fused", torch.float32, "cuda")
    assert relu_grad.called == is_ours


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("uses", USES)
def test_the_reference_is_one_operation_after_the_other(
    shape: Sizes, uses: tuple[bool, bool]
) -> None:
    ours, plain = (
        results(shape, form, torch.float64, uses=uses) for form in ("reference", "apart")
    )
    for one, other in zip(ours, plain, strict=True):
        assert torch.equal(one, other)


def test_both_forms_cost_the_same() -> None:
    # Wide enough for PyTorch's own products.
    (x, *maps), _ = drawn((5, 20, 400, 20), "cpu", torch.float32)
    rows = x[:, :20].detach()
    fused = count_flops(lambda: FeedForward.apply(rows, *maps))
    assert fused == count_flops(lambda: feed_forward(rows, *maps, backend="reference"))


def test_kernels_are_refused_where_they_cannot_run() -> None:
    (x, *maps), _ = drawn((5, 20, 40, 20), "cpu", torch.float64)
    with pytest.raises(UserError, match=r"backend must be 'reference' for torch\.float64"):
        feed_forward(x[:, :20], *maps, backend="fused")

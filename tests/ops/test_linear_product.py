"""The products of rows and a small weight, held to PyTorch's."""

from collections.abc import Callable
from itertools import product
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from graphmamba.ops.linear import linear, linear_through, operators
from tests.helpers.processes import only_interpreted, run_apart

SHAPES = ((70, 38, 20), (33, 96, 130), (5, 3, 48), (1, 48, 33), (0, 4, 8), (65, 200, 40))
"""Rows, columns that come in, columns that go out."""
TILES = (
    {"rows": 16, "channels": 16, "warps": 4, "programs": 1},
    {"rows": 64, "channels": 64, "warps": 4, "programs": 2},
    {"rows": 32, "channels": 32, "warps": 2, "piece": 16, "stages": 2},
)


def drawn(rows: int, inward: int, out: int, device: str) -> list[Tensor]:
    """Rows that do not lie close, weight, bias, gradient of the output, other gradient."""
    generator = torch.Generator().manual_seed(rows)
    shapes = ((rows, inward + 3), (out, inward), (out,), (rows, out + 1), (rows, inward + 5))
    found = [torch.randn(*shape, generator=generator).to(device) for shape in shapes]
    return [found[0][:, 1 : inward + 1], *found[1:3], found[3][:, :out], found[4][:, 4:-1]]


def assert_close(ours: Tensor, exact: Tensor, tolerance: float) -> None:
    assert ours.shape == exact.shape
    assert (ours.double() - exact).norm() <= tolerance * exact.norm() + 1e-12


def assert_products_are_right(device: str, tolerance: float) -> None:
    # Imported where Triton is.
    from graphmamba.ops.linear.product import Tiles, map_rows, relu_grad, rows_grad

    choices = (None, *(Tiles(**each) for each in TILES))
    for shape, tiles in product(SHAPES, choices):
        x, weight, bias, grad, more = drawn(*shape, device)
        exact_x, exact_weight, exact_grad = (each.double() for each in (x, weight, grad))
        mapped, back = exact_x @ exact_weight.T, exact_grad @ exact_weight
        assert_close(map_rows(x, weight, None, tiles=tiles), mapped, tolerance)
        cut = map_rows(x, weight, bias, is_relu=True, tiles=tiles)
        assert_close(cut, (mapped + bias).relu(), tolerance)
        assert torch.equal(cut, map_rows(x, weight, bias, is_relu=True, tiles=tiles))
        assert_close(rows_grad(grad, weight, tiles=tiles), back, tolerance)
        assert_close(rows_grad(grad, weight, more, tiles=tiles), back + more, tolerance)
        assert_close(relu_grad(grad, weight, more, tiles), back * (more > 0), tolerance)
        # one that lies as its transpose
        turned = weight.T.contiguous().T
        assert_close(map_rows(x, turned, bias, tiles=tiles), mapped + bias, tolerance)
        assert_close(rows_grad(grad, turned, tiles=tiles), back, tolerance)


def assert_rows_do_not_see_one_another(device: str) -> None:
    from graphmamba.ops.linear.product import map_rows, rows_grad

    x, weight, bias, grad, more = drawn(70, 96, 192, device)
    y, dx = map_rows(x, weight, bias), rows_grad(grad, weight, more)
    for rows in (1, 33, 69):
        assert torch.equal(map_rows(x[:rows], weight, bias), y[:rows])
        assert torch.equal(rows_grad(grad[:rows], weight, more[:rows]), dx[:rows])


def assert_a_relu_is_that_of_torch(device: str) -> None:
    """In the entries that it lets through, as it does what is no number."""
    from graphmamba.ops.linear.product import Tiles, map_rows, relu_grad, rows_grad

    for tiles in (None, *(Tiles(**each) for each in TILES)):
        x, weight, bias, grad, kept = drawn(70, 38, 48, device)
        x[3], x[5], grad[7] = torch.nan, torch.inf, torch.nan
        y = map_rows(x, weight, bias, tiles=tiles).relu()
        ours = map_rows(x, weight, bias, is_relu=True, tiles=tiles)
        torch.testing.assert_close(ours, y, rtol=0, atol=0, equal_nan=True)
        kept[:4], kept[4], kept[8:10] = 0, -0.0, torch.nan
        back = torch.ops.aten.threshold_backward(rows_grad(grad, weight, tiles=tiles), kept, 0)
        ours = relu_grad(grad, weight, kept, tiles)
        torch.testing.assert_close(ours, back, rtol=0, atol=0, equal_nan=True)
        assert not ours[:5].any()
        assert ours[7].isnan().any()
        assert (ours[7] == 0).any()


@only_interpreted
def test_interpreted_products_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.ops.test_linear_product import *\n"
        "assert_products_are_right('cpu', 1e-6)\n"
        "assert_rows_do_not_see_one_another('cpu')\n"
        "assert_a_relu_is_that_of_torch('cpu')",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_products_are_as_exact_as_tf32() -> None:
    assert_products_are_right("cuda", 2e-3)
    assert_rows_do_not_see_one_another("cuda")
    assert_a_relu_is_that_of_torch("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("door", [linear, linear_through])
@pytest.mark.parametrize(("precision", "is_ours"), [("tf32", True), ("ieee", False)])
def test_they_run_where_products_may_be_rounded(
    door: Callable[..., object],
    precision: str,
    is_ours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", precision)
    x, weight = torch.randn(2000, 96, device="cuda"), torch.randn(192, 96, device="cuda")
    with patch("graphmamba.ops.linear.product.map_rows", return_value=x @ weight.T) as ours:
        door(x, weight)
    assert ours.called == is_ours


@pytest.mark.parametrize(
    ("rows", "inward", "out", "is_ours"),
    [(5, 96, 384, True), (5, 96, 385, False), (5, 500, 96, False)],
)
def test_large_weights_are_left_to_pytorch(rows: int, inward: int, out: int, is_ours: bool) -> None:
    x, weight = torch.zeros(rows, inward), torch.zeros(out, inward)
    assert operators.is_ours_faster(x, weight) == is_ours

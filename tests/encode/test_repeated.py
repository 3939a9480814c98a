"""One row for many: its map and all gradients, held to those of the rows written out."""

import pytest
import torch
from torch import Tensor

from graphmamba.encode.linear import linear_through, repeat_row
from graphmamba.encode.linear.repeated import is_repeated, sum_of_rows
from tests.helpers.processes import only_interpreted, run_apart


def results(
    count: int, uses: tuple[bool, bool], has_bias: bool, is_one: bool, device: str
) -> list[Tensor]:
    """Outputs and gradients of a row, weight and bias; the map, the rows or both are used."""
    generator = torch.Generator().manual_seed(count)
    row, weight, bias, down, up = (
        torch.randn(*shape, generator=generator).to(device)
        for shape in ((1, 20), (30, 20), (30,), (count, 30), (count, 20))
    )
    leaves = [each.requires_grad_() for each in (row, weight, bias)]
    rows = repeat_row(row, count) if is_one else row.repeat(count, 1)
    backend = "fused" if is_one else "reference"
    y, again = linear_through(rows, weight, bias if has_bias else None, backend=backend)
    assert is_repeated(y) == (is_one and count > 1)
    used = [(y * down).sum()] if uses[0] else []
    used += [(again * up).sum()] if uses[1] else []
    sum(used[1:], used[0]).backward()
    found = [torch.zeros_like(each) if each.grad is None else each.grad for each in leaves]
    return [y.detach(), again.detach(), *found]


def assert_one_is_like_many(device: str, tolerance: float) -> None:
    for count in (1, 2, 300):
        for uses in ((True, True), (True, False), (False, True)):
            for has_bias in (True, False):
                case = count, uses, has_bias
                pairs = zip(
                    results(*case, True, device), results(*case, False, device), strict=True
                )
                for ours, plain in pairs:
                    error = (ours - plain).norm()
                    assert error <= tolerance * plain.norm() + 1e-6, (case, error)


@only_interpreted
def test_one_row_interpreted_is_like_many() -> None:
    run_apart(
        "from tests.encode.test_repeated import *\nassert_one_is_like_many('cpu', 1e-5)",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_one_row_is_like_many_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    assert_one_is_like_many("cuda", 5e-3)


def test_the_gradient_of_a_row_is_the_sum_of_theirs() -> None:
    row, grad = torch.randn(1, 3, requires_grad=True), torch.randn(5, 3)
    rows = repeat_row(row, 5)
    assert rows.stride(0) == 0
    rows.backward(grad)
    assert row.grad is not None
    torch.testing.assert_close(row.grad, grad.sum(0, keepdim=True))


def test_rows_that_are_one_are_added_up_by_their_number() -> None:
    row = torch.randn(1, 3)
    torch.testing.assert_close(sum_of_rows(row.expand(7, -1)), 7 * row)
    torch.testing.assert_close(sum_of_rows(row), row)
    assert sum_of_rows(torch.zeros(0, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_no_rows_have_no_gradient() -> None:
    row = torch.randn(1, 3, requires_grad=True)
    repeat_row(row, 0).sum().backward()
    assert row.grad is not None
    assert row.grad.tolist() == [[0.0, 0.0, 0.0]]

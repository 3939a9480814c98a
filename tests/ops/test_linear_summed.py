"""The product that finds the sums of the norm before it, held to the product and the sums."""

from itertools import product

import pytest
import torch
from torch import Tensor

from tests.helpers.processes import only_interpreted, run_apart
from tests.ops.test_linear_product import TILES

SHAPES = ((70, 38, 20), (33, 40, 130), (0, 4, 8), (65, 48, 96))
"""Rows, columns of the gradient, columns of the rows."""
NORMS = (("relu", 0.0, None), ("gelu", 0.3, 25), ("none", 0.0, 0), ("relu", 0.4, 64))
"""Activation, rate of the dropout, real rows."""


def assert_products_and_sums_are_right(device: str, tolerance: float) -> None:
    # Imported where Triton is.
    from graphmamba.ops.batch_norm import fused as norms
    from graphmamba.ops.linear.product import Tiles, rows_grad
    from graphmamba.ops.linear.summed import rows_grad_summed

    choices = (None, *(Tiles(**each) for each in TILES))
    for (rows, out, inward), case in product(SHAPES, zip(choices, NORMS, strict=True)):
        tiles, (activation, rate, real) = case
        generator = torch.Generator().manual_seed(rows)
        shapes = (rows, out + 1), (out, inward), (rows, inward + 3), (rows, inward), (3, inward)
        drawn = [torch.randn(*shape, generator=generator).to(device) for shape in shapes]
        grad, weight, more, normed = drawn[0][:, :out], drawn[1], drawn[2][:, 3:], drawn[3]
        norm_weight, norm_bias, mean = drawn[4]
        kept = torch.stack([mean, drawn[1][0].abs()])
        seed = torch.tensor(-98765, device=device) if rate else None
        count = None if real is None else torch.tensor(min(real, rows), device=device)
        for other in (more, None):
            given = grad, weight, other, kept, normed, norm_weight, norm_bias, seed, count
            ours = rows_grad_summed(*given, activation, rate, 5, tiles)
            again = rows_grad_summed(*given, activation, rate, 5, tiles)
            assert all(map(torch.equal, ours, again))
            plain = rows_grad(grad, weight, other)
            assert_close(ours[0], plain, tolerance)
            if not rows:
                assert not ours[1].any()
                assert not ours[2].any()
                continue
            parts = norms.backward_sums(
                *(ours[0], kept, normed, norm_weight, norm_bias, None, None, seed, count),
                *(activation, [0.0, rate], [0, 5]),
            )
            # the same gradient, summed in another order
            for found, whole in zip(ours[1:], parts.double().sum(0), strict=True):
                assert (found.double() - whole).abs().max() <= 1e-5 * rows


def assert_close(ours: Tensor, exact: Tensor, tolerance: float) -> None:
    assert (ours.double() - exact.double()).norm() <= tolerance * exact.double().norm() + 1e-4


@only_interpreted
def test_interpreted_kernels_are_right() -> None:
    run_apart(
        "from tests.ops.test_linear_summed import *\n"
        "assert_products_and_sums_are_right('cpu', 1e-5)\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_kernels_are_right() -> None:
    assert_products_and_sums_are_right("cuda", 2e-3)

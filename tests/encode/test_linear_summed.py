"""The product that finds the sums of the norm before it, held to the product and the sums."""

from itertools import product
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from graphmamba.encode.batch_norm.handed_sums import HandedSums, taker_of
from graphmamba.stack import GatedGCN
from tests.encode.test_linear_product import TILES
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.processes import only_interpreted, run_apart

SHAPES = ((70, 38, 20), (33, 40, 130), (0, 4, 8), (65, 48, 96))
"""Rows, columns of the gradient, columns of the rows."""
NORMS = (("relu", 0.0, None), ("gelu", 0.3, 25), ("none", 0.0, 0), ("relu", 0.4, 64))
"""Activation, rate of the dropout, real rows."""


def assert_products_and_sums_are_right(device: str, tolerance: float) -> None:
    # Imported where Triton is.
    from graphmamba.encode.batch_norm import fused as norms
    from graphmamba.encode.linear.product import Tiles, rows_grad
    from graphmamba.encode.linear.summed import rows_grad_summed

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


def layers_of(channels: int, count: int, backend: str) -> list[GatedGCN]:
    torch.manual_seed(0)
    layers = [GatedGCN(channels, dropout=0.3, backend=backend) for _ in range(count)]
    norm_backend = "fused" if backend == "fused" else "reference"
    for layer in layers:
        for part in (layer.nodes, layer.edges, layer.node_norm, layer.edge_norm):
            part.backend = norm_backend
    return layers


def gradients(layers: list[GatedGCN], is_read_twice: bool) -> tuple[list[Tensor], list[str]]:
    """Gradients of all weights, and what found the sums of the norms of the edges."""
    topology, told = random_topology(), []
    topology = type(topology)(**{**vars(topology), "seed": torch.tensor(3)})
    x, e = random_rows(topology, 20)
    from graphmamba.encode.linear import operators as linear

    grad_through, of = linear.grad_through, HandedSums.of

    def through(norm: object, *given: Tensor) -> Tensor:
        told.append("alone" if norm is None else "with the product")
        return grad_through(norm, *given)

    def taken(self: HandedSums, grad: Tensor) -> tuple[Tensor, Tensor] | None:
        sums = of(self, grad)
        told.append("refused" if sums is None else "taken")
        return sums

    with (
        patch.object(linear, "grad_through", through),
        patch.object(HandedSums, "of", taken),
    ):
        loss = torch.zeros(())
        for layer in layers:
            x, e = layer(x, e.requires_grad_(), topology)
            if is_read_twice:
                loss = loss + e.cos().sum()
        (loss + x.square().sum() + e.sin().sum()).backward()
    found = [each.grad for layer in layers for each in layer.parameters()]
    return [each for each in found if each is not None], told


def check_layers() -> None:
    """Weights learn the same, whoever finds the sums and whether they are still right."""
    for is_read_twice, fate in ((False, "taken"), (True, "refused")):
        ours, told = gradients(layers_of(20, 3, "fused"), is_read_twice)
        plain, _ = gradients(layers_of(20, 3, "cpu"), is_read_twice)
        for one, other in zip(ours, plain, strict=True):
            assert_close(one, other, 2e-5)
        assert told == ["with the product", fate, "with the product", fate, "alone"]


@only_interpreted
def test_interpreted_kernels_are_right() -> None:
    run_apart(
        "from tests.encode.test_linear_summed import *\n"
        "assert_products_and_sums_are_right('cpu', 1e-5)\n",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_layers_learn_the_same() -> None:
    run_apart(
        "from tests.encode.test_linear_summed import *\ncheck_layers()\n", TRITON_INTERPRET="1"
    )


@pytest.mark.gpu
def test_kernels_are_right() -> None:
    assert_products_and_sums_are_right("cuda", 2e-3)


def test_sums_are_those_of_one_gradient_alone() -> None:
    grad, sums = torch.ones(3, 2), (torch.ones(2), torch.zeros(2))
    handed = HandedSums(grad, *sums)
    assert handed.of(grad) == sums
    assert handed.of(grad.clone()) is None
    assert handed.of(grad[:2]) is None
    grad.add_(1)
    assert handed.of(grad) is None


def test_rows_that_no_norm_made_have_no_taker() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    assert taker_of(x) is None
    assert taker_of(x.exp()) is None

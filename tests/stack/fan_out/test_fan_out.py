from functools import partial
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from graphmamba.errors import UserError
from graphmamba.stack import gps_layer
from graphmamba.stack.fan_out import fan_out
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.layers import LAYERS
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off


def assert_gradients_are_added(device: str = "cpu") -> None:
    """In the order of what was handed out, some of it unread."""
    for rows, count, is_read in (
        (70, 4, (1, 1, 1, 1)), (33, 3, (1, 0, 1)), (1, 2, (0, 1)), (0, 2, (1, 1)),
        (5, 6, (1, 1, 1, 1, 1, 1)), (5, 1, (1,)),
    ):  # fmt: skip
        x = torch.randn(rows, 95, device=device, requires_grad=True)
        shares = fan_out(x, count, backend="fused")
        assert all(torch.equal(share, x) for share in shares)
        grads = [torch.randn(95, rows, device=device).T for _ in range(count)]
        read = [i for i in range(count) if is_read[i]]
        torch.autograd.backward([shares[i] for i in read], [grads[i] for i in read])
        total = torch.zeros_like(x)
        for i in read:
            total = total + grads[i]
        assert torch.equal(x.grad, total)


def assert_nothing_read_means_no_gradient() -> None:
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    shares = fan_out(x, 2, backend="fused")
    (weight.sum() + shares[0].detach().sum()).backward()
    assert x.grad is None


def assert_a_layer_has_the_same_gradients() -> None:
    """Whether or not it forgets, and with an edge model or a mixer alone."""
    for name, forgets in (
        ("graph-mamba", False),
        ("graph-mamba", True),
        ("transformer-alone", None),
    ):
        torch.manual_seed(0)
        layer = LAYERS[name](8)
        expected = results(layer, forgets)
        with patch.object(gps_layer, "fan_out", partial(fan_out, backend="fused")):
            found = results(layer, forgets)
        for ours, plain in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


def results(layer: nn.Module, forgets: bool | None) -> list[Tensor]:
    """Output and gradients."""
    for part in layer.modules():
        if hasattr(part, "forgets"):
            part.forgets = forgets
    topology = random_topology()
    x, e = random_rows(topology, 8)
    x.requires_grad_(True)
    out, _ = layer(x, e, topology)
    found = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()], allow_unused=True)
    return [out.detach(), *(each for each in found if each is not None)]


@only_interpreted
def test_the_interpreted_kernel_adds_gradients() -> None:
    run_apart(
        "from tests.stack.fan_out.test_fan_out import *\n"
        "assert_gradients_are_added()\n"
        "assert_a_layer_has_the_same_gradients()\n"
        "assert_nothing_read_means_no_gradient()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_a_gpu_adds_gradients() -> None:
    assert_gradients_are_added("cuda")


def test_elsewhere_rows_are_handed_out_as_they_are() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    assert all(share is x for share in fan_out(x, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 2, "backend": "cuda"}, "backend must be one of"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        fan_out(torch.randn(3, 4), **options)  # type: ignore[arg-type]

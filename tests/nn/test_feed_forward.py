"""The feed-forward network of a layer, as one operation on a GPU where nothing comes between."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from graphmamba.nn import GCN, GPSLayer
from graphmamba.ops.activation import Activation
from graphmamba.ops.linear.feed_forward import FeedForward
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.processes import only_interpreted, run_apart

CHANNELS = 20
CASES: tuple[tuple[Activation, float, bool, bool, bool], ...] = (
    ("relu", 0.0, True, False, True),
    ("relu", 0.5, False, False, True),
    ("relu", 0.5, True, False, False),
    ("relu", 0.0, True, True, False),
    ("gelu", 0.0, True, False, False),
)
"""Activation, rate of dropout, whether it is trained and forgets; whether it is one operation."""


def results(layer: GPSLayer, backend: str, device: str) -> list[Tensor]:
    """Output and gradients with linear maps that run so."""
    topology = random_topology()
    moved = {
        name: value.to(device) for name, value in vars(topology).items() if torch.is_tensor(value)
    }
    x = random_rows(topology, CHANNELS)[0].to(device).requires_grad_()
    for part in (layer.widen, layer.narrow):
        part.backend = backend  # type: ignore[assignment]
    out, _ = layer(x, None, replace(topology, **moved))
    loss = (out * torch.linspace(0, 1, CHANNELS, device=device)).sin().sum()
    return [out.detach(), *torch.autograd.grad(loss, [x, *layer.parameters()])]


def assert_layers_agree(device: str = "cpu") -> None:
    for activation, rate, is_training, forgets, is_one in CASES:
        torch.manual_seed(0)
        layer = GPSLayer(CHANNELS, GCN(CHANNELS), None, dropout=rate, activation=activation)
        layer.to(device).train(is_training).forgets = forgets
        plain = results(layer, "reference", device)
        with patch.object(FeedForward, "apply", side_effect=FeedForward.apply) as used:
            ours = results(layer, "fused", device)
        assert used.call_count == is_one
        for one, other in zip(ours, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@only_interpreted
def test_interpreted_layers_agree_with_plain_ones() -> None:
    run_apart(
        "from tests.nn.test_feed_forward import *\nassert_layers_agree()", TRITON_INTERPRET="1"
    )


@pytest.mark.gpu
def test_layers_agree_with_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
    assert_layers_agree("cuda")

"""Layers whose two first norms kernels do at once: the same as one after the other."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from graphmamba.encode.batch_norm import pair
from graphmamba.encode.norm import norms_of
from graphmamba.stack import GCN, Attention, GatedGCN, GPSLayer, GraphMambaLayer
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.processes import only_interpreted, run_apart

CHANNELS = 8


def results(
    layer: GPSLayer, backend: str, is_training: bool, forgets: bool, device: str = "cpu"
) -> list[Tensor]:
    """Outputs, gradients and what the norms remember, with the last nodes as ghosts."""
    topology = random_topology()
    x, e = (rows.to(device) for rows in random_rows(topology, CHANNELS))
    x.requires_grad_(True)
    topology = replace(topology, num_real_nodes=torch.tensor(len(x) - 3))
    moved = {
        name: value.to(device) for name, value in vars(topology).items() if torch.is_tensor(value)
    }
    topology = replace(topology, **moved)
    for part in layer.modules():
        if hasattr(part, "forgets"):
            part.forgets = forgets
    for norm in norms_of(layer):
        norm.reset_running_stats()
    for norm in (layer.local_norm.norm, layer.mixer_norm.norm):
        norm.backend = backend
    layer.train(is_training)
    out, edges = layer(x, e, topology)
    weights = torch.linspace(0, 1, CHANNELS, device=device)
    loss = (out * weights).sin().sum() + (edges * weights).square().sum()
    found = torch.autograd.grad(loss, [x, *layer.parameters()])
    return [out.detach(), edges.detach(), *found, *(each.clone() for each in layer.buffers())]


def assert_layers_agree(device: str = "cpu") -> None:
    """With and without dropout, in training and evaluation, forgetting and not."""
    for rate, is_training, forgets in (
        *((0.3, True, True), (0.3, True, False)),
        *((0.0, True, True), (0.3, False, False)),
    ):
        torch.manual_seed(0)
        layer = GraphMambaLayer(CHANNELS, dropout=rate).to(device)
        settings = is_training, forgets, device
        plain = results(layer, "reference", *settings)
        with patch.object(pair, "BatchNormPair", wraps=pair.BatchNormPair) as used:
            ours = results(layer, "fused", *settings)
        assert used.apply.call_count == 1
        for one, other in zip(ours, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@only_interpreted
def test_interpreted_layers_agree_with_separate_norms() -> None:
    run_apart(
        "from tests.stack.test_norm_pair import *\nassert_layers_agree()", TRITON_INTERPRET="1"
    )


@pytest.mark.gpu
def test_layers_agree_with_separate_norms() -> None:
    assert_layers_agree("cuda")


@pytest.mark.parametrize(
    "layer",
    [
        GPSLayer(8, GatedGCN(8), None),
        GPSLayer(8, None, Attention(8, 2)),
        # Its residual is added before its norm.
        GPSLayer(8, GCN(8), Attention(8, 2)),
        GPSLayer(8, GatedGCN(8), Attention(8, 2), norm="layer"),
        GPSLayer(8, GatedGCN(8), Attention(8, 2)),
    ],
    ids=["no mixer", "no local model", "no residual", "another norm", "cpu"],
)
def test_other_layers_run_one_norm_after_the_other(layer: GPSLayer) -> None:
    topology = random_topology()
    x, e = random_rows(topology, CHANNELS)
    with patch.object(pair, "BatchNormPair") as used:
        layer(x, e, topology)
    assert not used.mock_calls

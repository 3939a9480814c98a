"""Parameter counts of every part, to the last digit."""

import pytest
from torch import nn

from graphmamba.nn import (
    GCN,
    GCNE,
    GINE,
    Attention,
    BigBird,
    ExphormerStack,
    GatedGCN,
    GPSLayer,
    GraphMambaGlobal,
    GraphMambaLayer,
    Performer,
    ResidualLayer,
)

WIDTHS = [96, 64, 52, 48]


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("d", "total"), [(96, 118_752), (64, 54_336), (52, 36_660), (48, 31_440)])
def test_graph_mamba_layers_are_the_published_ones(d: int, total: int) -> None:
    assert count(GraphMambaLayer(d)) == total


@pytest.mark.parametrize("d", WIDTHS)
def test_parts(d: int) -> None:
    assert count(GatedGCN(d)) == 5 * d * d + 9 * d
    assert count(GatedGCN(d, has_stable_gate=True)) == 5 * d * d + 9 * d + 3 * d + 1
    assert count(Attention(d, 4)) == 4 * d * d + 4 * d
    assert count(Performer(d, 4, head_width=64)) == 256 * 4 * d + d
    assert count(Performer(d, 4)) == 4 * d * d + d
    assert count(BigBird(d, 4)) == 6 * d * d + 7 * d
    assert count(ResidualLayer(d, GINE(d))) == 2 * (d * d + d)
    assert count(ResidualLayer(d, GCN(d))) == d * d + d
    assert count(ResidualLayer(d, GCNE(d), norm="batch")) == d * d + 3 * d
    assert count(ResidualLayer(d, GCN(d, has_bias=False), norm="batch")) == d * d + 2 * d
    global_model = GraphMambaGlobal(d)
    both = ResidualLayer(d, GCNE(d), norm="batch", global_model=global_model)
    assert count(both) == count(global_model) + d * d + 5 * d


@pytest.mark.parametrize("d", WIDTHS)
def test_baseline_layers(d: int) -> None:
    assert count(GPSLayer(d, GatedGCN(d), Attention(d, 4))) == 13 * d * d + 22 * d
    for virtual_nodes in (0, 4):
        stack = ExphormerStack(d, 3, 4, virtual_nodes=virtual_nodes)
        rows = 1 + 3 * virtual_nodes
        assert count(stack) == 3 * (13 * d * d + 18 * d) + rows * d


def test_gps_transformer_layer_of_malnet_tiny() -> None:
    assert count(GPSLayer(64, GatedGCN(64), Attention(64, 4))) == 54_656


def test_published_performer_has_266_features() -> None:
    assert Performer(96, 4, head_width=64).projection.shape == (266, 64)

"""The layer without a feed-forward network, as its formula."""

import pytest
import torch
from torch.nn import functional

from graphmamba.errors import UserError
from graphmamba.nn import GCNE, Attention, GatedGCN, GraphMambaMixer, PlainLayer
from graphmamba.nn.build import build_layers
from graphmamba.nn.config import PlainConfig, StackConfig
from graphmamba.nn.options import NormName
from tests.helpers.graphs import random_rows, random_topology


@pytest.mark.parametrize("has_residual", [True, False])
@pytest.mark.parametrize("has_mixer", [True, False])
def test_plain_layers_are_their_formula(has_mixer: bool, has_residual: bool) -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = PlainLayer(
        8,
        GCNE(8),
        activation="gelu",
        norm="batch",
        mixer=Attention(8, 2) if has_mixer else None,
        has_residual=has_residual,
    )
    out, edges = layer(x, e, topology)
    rows = layer.norm(layer.local(x, e, topology)[0], topology)
    if layer.mixer is not None:
        # The mixer reads the layer's input, not what the local model made of it.
        rows = rows + layer.mixer_norm(layer.mixer(x, topology), topology)
    expected = functional.gelu(rows) + (x if has_residual else 0)
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.equal(edges, e)


def test_dropout_takes_whole_entries_in_training_only() -> None:
    topology = random_topology((40,))
    x, e = random_rows(topology)
    layer = PlainLayer(
        8, GCNE(8), dropout=0.5, norm="batch", mixer=Attention(8, 2), has_residual=False
    )
    torch.manual_seed(0)
    dropped = layer(x, e, topology)[0]
    layer.dropout.rate = 0.0
    whole = layer(x, e, topology)[0]
    is_left = dropped != 0
    assert torch.allclose(dropped[is_left], 2 * whole[is_left], atol=1e-6)
    assert 0 < is_left.sum() < (whole != 0).sum()


@pytest.mark.parametrize("norm", ["batch", "layer", "graph"])
def test_a_mixer_begins_with_little_to_say(norm: NormName) -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = PlainLayer(8, GCNE(8), activation="none", norm=norm, mixer=Attention(8, 2))
    with_mixer = layer(x, e, topology)[0]
    layer.mixer = None
    without = layer(x, e, topology)[0]
    assert (with_mixer - without).std().item() == pytest.approx(0.1, rel=0.1)


def test_a_plain_stack_has_mixers_that_line_up_anew() -> None:
    config = StackConfig(8, 2, local="gcne", join="plain", plain=PlainConfig(norm="batch"))
    layers = build_layers(config)
    assert all(isinstance(layer, PlainLayer) for layer in layers)
    mixers = [layer.mixer for layer in layers]
    assert all(isinstance(mixer, GraphMambaMixer) for mixer in mixers)
    assert [mixer.layer for mixer in mixers] == [0, 1]


def test_without_a_mixer_a_layer_is_plain_whatever_the_entry() -> None:
    for name in ("gps", "plain"):
        (layer,) = build_layers(StackConfig(8, 1, local="gcne", mixer="none", join=name))
        assert isinstance(layer, PlainLayer)
        assert layer.mixer is None


def test_exphormer_is_no_plain_layer() -> None:
    with pytest.raises(UserError, match=r"model\.join must be 'gps' for Exphormer, got 'plain'"):
        build_layers(StackConfig(8, 1, mixer="exphormer", join="plain"))


def test_a_plain_layer_is_not_without_messages() -> None:
    with pytest.raises(UserError, match=r"model\.local must be a local model"):
        build_layers(StackConfig(8, 1, local="none", join="plain"))


def test_a_plain_layer_with_a_mixer_adds_its_input_once() -> None:
    message = r"model\.local must be a model without a residual of its own .* got 'gatedgcn'"
    with pytest.raises(UserError, match=message):
        build_layers(StackConfig(8, 1, local="gatedgcn", join="plain"))
    (alone,) = build_layers(StackConfig(8, 1, local="gatedgcn", mixer="none", join="plain"))
    assert isinstance(alone, GatedGCN)

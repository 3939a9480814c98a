"""The layers as their formulas, with each of their options."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import LayerNorm

from graphmamba.nn import (
    GCN,
    GCNE,
    Attention,
    GatedGCN,
    GPSLayer,
    ResidualLayer,
)
from graphmamba.nn.norm import GraphLayerNorm
from tests.helpers.graphs import random_rows, random_topology


def test_layer_with_gated_gcn_is_its_formula() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = GPSLayer(8, GatedGCN(8), Attention(8, 2))
    out, edges = layer(x, e, topology)
    near, expected_edges = layer.local_model(x, e, topology)
    s = layer.norm_local(near, topology)
    # The global model reads the layer's input, not what the local model made of it.
    s = s + layer.norm_global(x + layer.global_model(x, topology), topology)
    expected = layer.norm(s + layer.fc2(torch.relu(layer.fc1(s))), topology)
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.equal(edges, expected_edges)


def test_local_models_without_residual_get_one() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = GPSLayer(8, GCN(8), None, norm="none")
    s = x + layer.local_model(x, e, topology)[0]
    expected = s + layer.fc2(torch.relu(layer.fc1(s)))
    assert torch.allclose(layer(x, e, topology)[0], expected, atol=1e-6)


def test_dropout_acts_in_training_only() -> None:
    topology = random_topology((12,))
    x, e = random_rows(topology)
    layer = GPSLayer(8, GatedGCN(8, dropout=0.5), Attention(8, 2), dropout=0.5)
    other = replace(topology, seed=torch.tensor(1))
    assert not torch.equal(layer(x, e, topology)[0], layer(x, e, other)[0])
    layer.eval()
    assert torch.equal(layer(x, e, topology)[0], layer(x, e, topology)[0])


@pytest.mark.parametrize(
    ("local_model", "global_model"),
    [(GCN(8), None), (None, Attention(8, 2))],
    ids=["local_model", "global_model"],
)
def test_what_a_part_without_residual_gives_is_dropped_in_training(
    local_model: GCN | None, global_model: Attention | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = random_topology((40,))
    x, e = random_rows(topology)
    layer = GPSLayer(8, local_model, global_model, dropout=0.5, norm="none")
    monkeypatch.setattr(layer, "feed_forward", lambda s, _: torch.zeros_like(s))
    found = layer(x, e, topology)[0] - x
    given = global_model(x, topology) if local_model is None else local_model(x, e, topology)[0]
    is_kept = found != 0
    assert 0.3 < is_kept.double().mean() < 0.7
    assert torch.allclose(found[is_kept], 2 * given[is_kept], atol=1e-5)


def test_graph_norm_is_the_layer_norm_of_pyg() -> None:
    topology = random_topology((5, 1, 7))
    x, _ = random_rows(topology)
    ours, theirs = GraphLayerNorm(8), LayerNorm(8)
    ours.weight.data.uniform_()
    ours.bias.data.uniform_()
    theirs.load_state_dict(ours.state_dict())
    assert torch.allclose(
        ours(x, topology), theirs(x, topology.batch, topology.num_graphs), atol=1e-5
    )


@pytest.mark.parametrize("has_residual", [True, False])
@pytest.mark.parametrize("has_global_model", [True, False])
def test_plain_layers_are_their_formula(has_global_model: bool, has_residual: bool) -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = ResidualLayer(
        8,
        GCNE(8),
        activation="gelu",
        norm="batch",
        global_model=Attention(8, 2) if has_global_model else None,
        has_residual=has_residual,
    )
    out, edges = layer(x, e, topology)
    rows = layer.norm(layer.local_model(x, e, topology)[0], topology)
    if layer.global_model is not None:
        # The global model reads the layer's input, not what the local model made of it.
        rows = rows + layer.norm_global(layer.global_model(x, topology), topology)
    expected = functional.gelu(rows) + (x if has_residual else 0)
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.equal(edges, e)

"""The layer as its formula, with each of its options."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.nn import LayerNorm

from graphmamba.errors import UserError
from graphmamba.nn import GCN, Attention, GatedGCN, GPSLayer, GraphMambaLayer
from graphmamba.nn.norm import GraphLayerNorm, NodeNorm
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.typecheck import typecheck_off


def test_layer_with_gated_gcn_is_its_formula() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = GPSLayer(8, GatedGCN(8), Attention(8, 2))
    out, edges = layer(x, e, topology)
    near, expected_edges = layer.local(x, e, topology)
    s = layer.local_norm(near, topology)
    # The mixer reads the layer's input, not what the local model made of it.
    s = s + layer.mixer_norm(x + layer.mixer(x, topology), topology)
    expected = layer.norm(s + layer.narrow(torch.relu(layer.widen(s))), topology)
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.equal(edges, expected_edges)


def test_local_models_without_residual_get_one() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = GPSLayer(8, GCN(8), None, norm="none")
    s = x + layer.local(x, e, topology)[0]
    expected = s + layer.narrow(torch.relu(layer.widen(s)))
    assert torch.allclose(layer(x, e, topology)[0], expected, atol=1e-6)


def test_activation_reaches_local_model_and_feed_forward() -> None:
    layer = GraphMambaLayer(8, activation="gelu")
    assert layer.activation is layer.local.activation is torch.nn.functional.gelu


def test_dropout_acts_in_training_only() -> None:
    topology = random_topology((12,))
    x, e = random_rows(topology)
    layer = GPSLayer(8, GatedGCN(8, dropout=0.5), Attention(8, 2), dropout=0.5)
    other = replace(topology, seed=torch.tensor(1))
    assert not torch.equal(layer(x, e, topology)[0], layer(x, e, other)[0])
    layer.eval()
    assert torch.equal(layer(x, e, topology)[0], layer(x, e, topology)[0])


@pytest.mark.parametrize(
    ("local", "mixer"), [(GCN(8), None), (None, Attention(8, 2))], ids=["local", "mixer"]
)
def test_what_a_part_without_residual_gives_is_dropped_in_training(
    local: GCN | None, mixer: Attention | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = random_topology((40,))
    x, e = random_rows(topology)
    layer = GPSLayer(8, local, mixer, dropout=0.5, norm="none")
    monkeypatch.setattr(layer, "feed_forward", lambda s, _: torch.zeros_like(s))
    found = layer(x, e, topology)[0] - x
    given = mixer(x, topology) if local is None else local(x, e, topology)[0]
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


@pytest.mark.parametrize(
    ("name", "count"), [("batch", 16), ("layer", 16), ("graph", 16), ("none", 0)]
)
def test_norms_by_name(name: str, count: int) -> None:
    norm = NodeNorm(name, 8)
    assert sum(parameter.numel() for parameter in norm.parameters()) == count
    topology = random_topology()
    x, _ = random_rows(topology)
    assert norm(x, topology).shape == x.shape


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UserError, match="local and mixer must not both be None, got None"):
        GPSLayer(8, None, None)
    with typecheck_off(), pytest.raises(UserError, match=r"norm must be one of .* got 'instance'"):
        GraphMambaLayer(8, norm="instance")
    with pytest.raises(UserError, match=r"dropout must be in \[0, 1\), got 2.0"):
        GraphMambaLayer(8, dropout=2.0)
    with pytest.raises(UserError, match="layer must be at least 0, got -1"):
        GraphMambaLayer(8, layer=-1)

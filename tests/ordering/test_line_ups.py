"""Layers that are lined up together get what each would get by itself."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphmamba.data.topology import Topology
from graphmamba.nn import Backbone, GraphMambaLayer
from graphmamba.nn.graph_mamba_mixer import GraphMambaMixer
from graphmamba.ordering import LineUp, OrderPolicy, line_up, line_up_layers
from graphmamba.ordering import line_ups as together
from graphmamba.ordering.line_ups import Request, line_ups_of
from tests.helpers.graphs import random_rows, random_topology
from tests.nn.test_backbone import GivenRows
from tests.ordering.test_line_up import POLICIES, by_name

TOPOLOGIES = {
    "odd": random_topology(),
    "none": random_topology(()),
    "empty": random_topology((0, 0)),
}


def assert_same(ours: LineUp, theirs: LineUp) -> None:
    assert ours.samples == theirs.samples
    assert ours.cu_seqlens.dtype == theirs.cu_seqlens.dtype
    assert torch.equal(ours.cu_seqlens, theirs.cu_seqlens)
    if theirs.order is None:
        assert ours.order is None
    else:
        assert torch.equal(ours.order, theirs.order)


@by_name(POLICIES)
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_layers_lined_up_together_are_as_alone(
    policy: OrderPolicy, samples: int, topology: Topology
) -> None:
    lines = line_up_layers(policy, topology, samples=samples, layers=range(2, 5))
    assert len(lines) == 3
    for layer, line in zip(range(2, 5), lines, strict=True):
        assert_same(line, line_up(policy, topology, samples=samples, layer=layer))


@by_name(POLICIES)
def test_what_is_known_of_a_batch_changes_no_order(policy: OrderPolicy) -> None:
    topology = random_topology()
    known = replace(topology, ptr=topology.starts(), edge_layout=topology.lay_out())
    assert_same(line_up(policy, known, samples=2), line_up(policy, topology, samples=2))


@pytest.mark.parametrize("most", [1, 60, 1 << 22])
def test_requests_are_met_whatever_their_layers(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MOST_STEPS", most)
    topology, first, second = random_topology(), OrderPolicy(), OrderPolicy(bins=2)
    requests: list[Request] = [
        *((first, 1, layer) for layer in (5, 0, 1, 2, 0)),
        *((first, 2, layer) for layer in (0, 1)),
        *((second, 1, layer) for layer in (1, 3)),
    ]
    made = line_ups_of(requests, topology)
    assert set(made) == set(requests)
    for policy, samples, layer in requests:
        alone = line_up(policy, topology, samples=samples, layer=layer)
        assert_same(made[policy, samples, layer], alone)


def test_runs_are_no_longer_than_asked_for() -> None:
    runs = together._runs([0, 1, 2, 3, 4, 7], 2)
    assert list(runs) == [range(2), range(2, 4), range(4, 5), range(7, 8)]


def test_a_line_up_that_was_made_is_taken() -> None:
    topology, policy = random_topology(), OrderPolicy(noise="none")
    x, _ = random_rows(topology)
    mixer = GraphMambaMixer(8, policy)
    other = line_up(OrderPolicy(), topology, layer=7)
    told = mixer(x, replace(topology, line_up=other))
    assert torch.equal(told, mixer.mamba(x, other.cu_seqlens, other.order))
    assert not torch.equal(told, mixer(x, topology))


class Alone(nn.Module):
    """A layer that finds nothing prepared."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, e: torch.Tensor, topology: Topology) -> object:
        return self.layer(x, e, replace(topology, line_up=None))


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
def test_a_backbone_gives_its_layers_the_orders_that_they_would_draw(is_training: bool) -> None:
    policies = (OrderPolicy(), OrderPolicy(bins=3), OrderPolicy(), OrderPolicy(noise="none"))
    torch.manual_seed(0)
    layers = [GraphMambaLayer(8, policy, layer=i) for i, policy in enumerate(policies)]
    topology = random_topology((9, 4))
    x, e = random_rows(topology)
    outputs = [
        Backbone(GivenRows(), stack).train(is_training)(Data(x=x, e=e), topology)
        for stack in (layers, [Alone(layer) for layer in layers])
    ]
    assert torch.equal(*outputs)


def test_a_backbone_sorts_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = Backbone(GivenRows(), [GraphMambaLayer(8, layer=layer) for layer in range(4)])
    topology = random_topology((9, 4))
    x, e = random_rows(topology)
    sorts, sort = [], torch.sort
    monkeypatch.setattr(torch, "sort", lambda *a, **k: (sorts.append(1), sort(*a, **k))[1])
    backbone(Data(x=x, e=e), topology)
    assert len(sorts) == 1

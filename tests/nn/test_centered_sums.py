"""Sums over neighbours, centred by degree, against their formula."""

import pytest
import torch

from graphmamba.nn import GCNE, GINE, GatedGCN
from graphmamba.nn.message_passing import center_sums
from tests.helpers.graphs import random_rows, random_topology


def test_each_graph_is_centred_by_itself() -> None:
    topology = random_topology((7, 1, 0, 5))
    sums, _ = random_rows(topology, dtype=torch.float64)
    found = center_sums(sums, topology)
    degree = topology.edge_index[1].bincount(minlength=13).double()
    for graph in range(topology.num_graphs):
        nodes = (topology.batch == graph).nonzero().flatten()
        edges = degree[nodes].sum()
        if edges == 0:
            continue
        expected = sums[nodes] - degree[nodes, None] * sums[nodes].sum(0) / edges
        assert torch.allclose(found[nodes], expected / (edges / len(nodes)).sqrt())
        assert torch.allclose(found[nodes].sum(0), torch.zeros(8, dtype=torch.float64), atol=1e-12)


def test_neighbours_that_are_all_alike_say_nothing() -> None:
    topology = random_topology((9, 6))
    degree = topology.edge_index[1].bincount(minlength=15)[:, None]
    same = (degree * torch.tensor([[1.0, -2.0]])).double()
    assert center_sums(same, topology).abs().max() < 1e-12


def test_gated_gcn_centres_its_mean_times_the_degree() -> None:
    topology = random_topology((9, 1, 6))
    x, e = random_rows(topology, dtype=torch.float64)
    torch.manual_seed(0)
    plain = GatedGCN(8).double().eval()
    centered = GatedGCN(8, is_centered=True).double().eval()
    centered.load_state_dict(plain.state_dict())
    for layer in (plain, centered):
        # Fresh norms then pass their input on, and no ReLU hides it.
        layer.node_norm.running_var.fill_(1 - layer.node_norm.eps)
        layer.activation = torch.nn.Identity()
    own = plain.nodes(x)[:, :8]
    mean = plain(x, e, topology)[0] - x - own
    degree = topology.edge_index[1].bincount(minlength=16)[:, None]
    expected = x + own + center_sums(degree * mean, topology)
    assert torch.allclose(centered(x, e, topology)[0], expected)


@pytest.mark.parametrize("kind", [GCNE, GINE])
def test_sums_of_other_models_are_centred_before_what_follows(kind: type) -> None:
    topology = random_topology((9, 1, 6))
    x, _ = random_rows(topology)
    torch.manual_seed(0)
    plain, centered = kind(8), kind(8, is_centered=True)
    centered.load_state_dict(plain.state_dict())
    # Edges that close every ReLU: sums of zeros, however they are centred.
    closed = torch.full((topology.edge_index.shape[1], 8), -1e6)
    opened = torch.zeros_like(closed)
    assert torch.equal(plain(x, closed, topology)[0], centered(x, closed, topology)[0])
    assert not torch.allclose(plain(x, opened, topology)[0], centered(x, opened, topology)[0])

"""Message passing against PyTorch Geometric and against its formula."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GINConv, GINEConv, SAGEConv

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn import GCN, GCNE, GINE, SAGE, GatedGCN
from graphmamba.nn.message_passing import center_sums
from graphmamba.ops.neighbor_sum import sum_neighbors
from graphmamba.ops.segments import sum_at_targets, take_sources
from tests.helpers.graphs import random_rows, random_topology, with_gate


@pytest.fixture
def topology() -> Topology:
    # The edges of the first three nodes are doubled: repeated edges must count twice.
    drawn = random_topology((9, 1, 6))
    edges = drawn.edge_index
    return replace(drawn, edge_index=torch.cat([edges, edges[:, :3]], dim=1))


def test_gcn_is_that_of_pyg(topology: Topology) -> None:
    x, _ = random_rows(topology)
    ours, theirs = GCN(8), GCNConv(8, 8)
    theirs.lin.weight.data.copy_(ours.linear.weight.data)
    ours.linear.bias.data.uniform_()
    theirs.bias.data.copy_(ours.linear.bias.data)
    assert torch.allclose(ours(x, None, topology)[0], theirs(x, topology.edge_index), atol=1e-5)


def test_sage_is_that_of_pyg(topology: Topology) -> None:
    x, _ = random_rows(topology)
    ours, theirs = SAGE(8), SAGEConv(8, 8)
    theirs.lin_l.weight.data.copy_(ours.neighbors.weight.data)
    theirs.lin_l.bias.data.copy_(ours.own.bias.data)
    theirs.lin_r.weight.data.copy_(ours.own.weight.data)
    assert torch.allclose(ours(x, None, topology)[0], theirs(x, topology.edge_index), atol=1e-5)


def test_neighbors_are_summed_as_edge_by_edge(topology: Topology) -> None:
    x, _ = random_rows(topology, dtype=torch.float64)
    x.requires_grad_()
    layout = topology.lay_out()
    for rows in (x, x[:, :0], x[:, 1::2]):
        expected = sum_at_targets(take_sources(rows, layout), layout)
        assert torch.equal(sum_neighbors(rows, layout), expected)
    assert torch.autograd.gradcheck(lambda rows: sum_neighbors(rows, layout), x)
    torch.library.opcheck(
        torch.ops.graphmamba.neighbor_sum.default,
        (x, layout.edge_index[0], layout.target_ptr, layout.target_order,
         layout.edge_index[1], layout.source_ptr, layout.source_order),
    )  # fmt: skip


def test_gcne_is_its_formula(topology: Topology) -> None:
    x, e = random_rows(topology)
    local_model = GCNE(8)
    local_model.bias.data.uniform_()
    expected = local_model.bias.expand_as(x).clone()
    for edge, (j, i) in enumerate(topology.edge_index.T.tolist()):
        expected[i] += torch.relu(local_model.linear.weight @ x[j] + e[edge])
    out, edges = local_model(x, e, topology)
    assert torch.allclose(out, expected, atol=1e-5)
    assert edges is e


@pytest.mark.parametrize("reads_edges", [True, False])
def test_gine_is_that_of_pyg(topology: Topology, reads_edges: bool) -> None:
    x, e = random_rows(topology)
    ours = GINE(8, reads_edges=reads_edges)
    network = nn.Sequential(ours.first, nn.ReLU(), ours.second)
    theirs = GINEConv(network) if reads_edges else GINConv(network)
    arguments = (x, topology.edge_index, *((e,) if reads_edges else ()))
    # Their constructors draw new weights for the network they are given, which is ours too.
    assert torch.allclose(ours(x, e, topology)[0], theirs(*arguments), atol=1e-5)


@pytest.mark.parametrize("has_stable_gate", [False, True])
def test_gated_gcn_is_its_formula(topology: Topology, has_stable_gate: bool) -> None:
    topology = with_gate(topology)
    x, e = random_rows(topology)
    layer = GatedGCN(8, has_stable_gate=has_stable_gate).eval()
    A, B, D, E = (
        nn.functional.linear(x, weight, bias)
        for weight, bias in zip(layer.nodes.weight.chunk(4), layer.nodes.bias.chunk(4), strict=True)
    )
    new_e = torch.empty_like(e)
    received, opened = torch.zeros_like(x), torch.zeros_like(x)
    for edge, (j, i) in enumerate(topology.edge_index.T.tolist()):
        new_e[edge] = D[i] + E[j] + layer.edges(e[edge])
        gate = torch.sigmoid(new_e[edge])
        if has_stable_gate:
            place = topology.columns["gate_encoding"]
            gate = gate * layer.stable_gate((place[i] - place[j]).square().sum()[None])
        received[i] += gate * B[j]
        opened[i] += gate
    new_x = A + received / (opened + 1e-6)
    out, edges = layer(x, e, topology)
    # Fresh BatchNorms divide by sqrt(1 + 1e-5) at evaluation.
    assert torch.allclose(out, x + torch.relu(new_x / (1 + 1e-5) ** 0.5), atol=1e-5)
    assert torch.allclose(edges, e + torch.relu(new_e / (1 + 1e-5) ** 0.5), atol=1e-5)


LOCALS = [GatedGCN(8), GINE(8), GCNE(8)]


@pytest.mark.parametrize("local_model", LOCALS, ids=["gatedgcn", "gine", "gcne"])
def test_missing_edge_rows_are_asked_for(local_model: nn.Module, topology: Topology) -> None:
    with pytest.raises(UserError, match=r"e must hold a row for each edge .* got None"):
        local_model(random_rows(topology)[0], None, topology)


def test_missing_gate_encoding_is_asked_for(topology: Topology) -> None:
    x, e = random_rows(topology)
    with pytest.raises(UserError, match=r"gate_encoding must be given .* got None"):
        GatedGCN(8, has_stable_gate=True)(x, e, topology)


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

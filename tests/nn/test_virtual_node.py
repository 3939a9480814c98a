"""What a stack has besides its layers: virtual nodes, reverse edges, jumping knowledge."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.data.batch import Topology
from graphmamba.nn import Backbone, GatedGCN, ReverseEdges, VirtualNode
from graphmamba.nn.encoders import Encoded
from tests.helpers.graphs import random_rows, random_topology


class Given(nn.Module):
    """In the place of an encoder: the rows as they are."""

    def forward(self, graphs: Data) -> Encoded:
        return Encoded(graphs.x, graphs.e, None)


class AddOne(nn.Module):
    """In the place of a layer."""

    def forward(self, x: Tensor, e: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return x + 1, e


def test_a_virtual_node_hears_its_graph_and_is_carried_on() -> None:
    topology = random_topology((3, 1, 0, 4))
    x, _ = random_rows(topology, dtype=torch.float64)
    node = VirtualNode(8).double()

    def rounds(rows: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        hidden = node.norm(node.fc1(v + rows.sum(0)))
        new = node.fc2(hidden.relu())
        return rows + new, new

    first, v = node(x, None, topology)
    second, _ = node(first, v, topology)
    for graph in (0, 1, 3):
        nodes = topology.batch == graph
        rows, own = rounds(x[nodes], torch.zeros(8, dtype=torch.float64))
        assert torch.allclose(first[nodes], rows)
        assert torch.allclose(second[nodes], rounds(rows, own)[0])


def test_jumping_knowledge_is_the_mean_over_layers() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    stack = Backbone(Given(), [AddOne(), AddOne(), AddOne()], has_jumping_knowledge=True)
    assert torch.allclose(stack(Data(x=x, e=e), topology), x + 2)


def test_reverse_edges_carry_messages_backwards() -> None:
    """One layer on a doubled path: its ends hear what lies behind them, by edges of another row."""
    topology = replace(random_topology((3,)), edge_index=torch.tensor([[0, 1], [1, 2]]))
    x, e = random_rows(topology)
    reverse = ReverseEdges(8)
    doubled = reverse.both_ways(topology)
    assert doubled.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    rows = reverse(e)
    assert torch.equal(rows[0::2], e)
    assert torch.allclose(rows[1::2] - rows[0::2], reverse.reverse.expand_as(e), atol=1e-6)
    layer = GatedGCN(8).eval()
    out, _ = layer(x, rows, doubled)
    by_hand = replace(doubled, edge_layout=None)
    assert torch.equal(out, layer(x, rows, by_hand)[0])
    other = x.clone()
    other[2] += 1
    changed = (layer(other, rows, doubled)[0] != out).any(dim=1).tolist()
    assert changed == [False, True, True]
    forward_only = (layer(other, e, topology)[0] != layer(x, e, topology)[0]).any(dim=1)
    assert forward_only.tolist() == [False, False, True]

"""One seed serves a whole pass, and every pass has its own."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data

from graphmamba.data.topology import Topology
from graphmamba.nn import Attention, Backbone, BigBird, GPSLayer, GraphMambaLayer, Performer
from graphmamba.nn.encoder import Encoded
from tests.helpers.graphs import random_rows, random_topology


class GivenRows(nn.Module):
    """An encoder whose rows are already there."""

    def forward(self, graphs: Data) -> Encoded:
        return Encoded(graphs.x, graphs.e, None)


class Recomputed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, e: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
        return checkpoint(self.layer, x, e, topology, use_reentrant=False)


def backbone_of(*layers: nn.Module, seed: int = 0) -> Backbone:
    return Backbone(GivenRows(), layers, seed=seed)


def batch_of(topology: Topology) -> Data:
    x, e = random_rows(topology)
    return Data(x=x, e=e)


TOPOLOGY = replace(random_topology((9, 4)), seed=None)
GRAPHS = batch_of(TOPOLOGY)


def test_training_passes_differ_and_evaluation_passes_do_not() -> None:
    backbone = backbone_of(GraphMambaLayer(8), GraphMambaLayer(8, layer=1))
    assert not torch.equal(backbone(GRAPHS, TOPOLOGY), backbone(GRAPHS, TOPOLOGY))
    backbone.eval()
    assert torch.equal(backbone(GRAPHS, TOPOLOGY), backbone(GRAPHS, TOPOLOGY))


def test_evaluation_does_not_depend_on_the_batch_size() -> None:
    backbone = backbone_of(GraphMambaLayer(8)).eval()
    together = backbone(GRAPHS, TOPOLOGY)
    is_second = TOPOLOGY.batch == 1
    inside = TOPOLOGY.edge_index[0] >= 9
    alone = Topology(
        TOPOLOGY.edge_index[:, inside] - 9,
        torch.zeros(4, dtype=torch.int64),
        1,
        TOPOLOGY.graph_key[1:],
    )
    single = backbone(Data(x=GRAPHS.x[is_second], e=GRAPHS.e[inside]), alone)
    assert torch.allclose(single, together[is_second], atol=1e-5)


def test_a_given_seed_comes_first() -> None:
    backbone = backbone_of(GraphMambaLayer(8))
    seeded = replace(TOPOLOGY, seed=torch.tensor(5))
    assert torch.equal(backbone(GRAPHS, seeded), backbone(GRAPHS, seeded))
    assert int(backbone.noise_seed.passes) == 0


def test_a_resumed_run_draws_what_the_first_would_have() -> None:
    torch.manual_seed(0)
    first, second = (backbone_of(GraphMambaLayer(8), seed=seed) for seed in (3, 4))
    first(GRAPHS, TOPOLOGY)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(GRAPHS, TOPOLOGY), second(GRAPHS, TOPOLOGY))


def test_recomputed_activations_meet_the_same_line_up() -> None:
    torch.manual_seed(0)
    plain = backbone_of(GraphMambaLayer(8, norm="layer"))
    again = backbone_of(Recomputed(plain.layers[0]))
    gradients = []
    for backbone in (plain, again):
        plain.zero_grad()
        backbone(GRAPHS, TOPOLOGY).square().sum().backward()
        gradients.append(plain.layers[0].mixer.mamba.in_proj.weight.grad.clone())
    assert torch.allclose(*gradients, atol=1e-5)


def test_what_layers_share_is_what_each_would_find() -> None:
    torch.manual_seed(0)
    mixers = (BigBird(8, 2), BigBird(8, 4, block=2), Attention(8, 2), Performer(8, 2))
    layers = [GPSLayer(8, None, mixer).eval() for mixer in mixers]
    x, e = GRAPHS.x, GRAPHS.e
    for layer in layers:
        x, e = layer(x, e, TOPOLOGY)
    assert torch.equal(backbone_of(*layers)(GRAPHS, TOPOLOGY), x)

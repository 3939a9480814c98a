"""The layer of the paper as a door of its own: what it drops, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba import GraphMambaLayer
from graphmamba.data.topology import Topology
from graphmamba.errors import UserError
from graphmamba.nn.backbone import Backbone
from graphmamba.nn.dropout import Dropout
from graphmamba.nn.exphormer import ExphormerStack
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.typecheck import typecheck_off
from tests.nn.test_backbone import GivenRows

X, E = torch.randn(5, 8), torch.randn(4, 8)
TOPOLOGY = Topology(
    edge_index=torch.tensor([[0, 1, 3, 4], [1, 0, 4, 3]]),
    batch=torch.tensor([0, 0, 1, 1, 1]),
    num_graphs=2,
    seed=torch.tensor(3),
)


def test_rows_come_out_as_wide_as_they_went_in() -> None:
    x, e = GraphMambaLayer(8)(X, E, TOPOLOGY)
    assert e is not None
    assert (x.shape, e.shape) == (X.shape, E.shape)


@pytest.mark.parametrize(
    ("x", "e", "topology", "message"),
    [
        (X, TOPOLOGY.edge_index, TOPOLOGY.batch, "topology must be Topology, got Tensor: Topology"),
        (X[:, :7], E, TOPOLOGY, r"x must have shape \[5, 8\], got \[5, 7\]"),
        (X[:4], E, TOPOLOGY, r"x must have shape \[5, 8\], got \[4, 8\]"),
        (X.double(), E, TOPOLOGY, "x.dtype must be that of the parameters, torch.float32"),
        (X, E[:3], TOPOLOGY, r"e must have shape \[4, 8\], got \[3, 8\]"),
        (X, None, TOPOLOGY, "e must hold a row for each edge for GatedGCN, got None"),
        (
            X,
            E,
            replace(TOPOLOGY, batch=torch.tensor([1, 0, 0, 1, 1])),
            "batch must be sorted, got 0 after 1 at node 1",
        ),
        (
            X,
            E,
            replace(TOPOLOGY, edge_index=torch.tensor([[0, 1, 3, 4], [1, 0, 4, 5]])),
            "edge_index must hold numbers of the 5 nodes, 0 to 4, got 5",
        ),
    ],
)
def test_wrong_rows_are_refused(x: Any, e: Any, topology: Any, message: str) -> None:
    layer = GraphMambaLayer(8)
    with typecheck_off(), pytest.raises(UserError, match=message):
        layer(x, e, topology)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels must be at least 1, got 0"),
        ({"channels": "8"}, "channels must be int, got '8'"),
        ({"channels": 8, "dropout": "x"}, r"dropout must be in \[0, 1\), got 'x'"),
    ],
)
def test_wrong_sizes_are_refused(arguments: Any, message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        GraphMambaLayer(**arguments)


def test_layers_of_one_stack_drop_different_entries() -> None:
    layer, other = (GraphMambaLayer(8, layer=number, dropout=0.5) for number in (0, 1))
    assert _sites(layer) == [*range(len(_sites(layer)))]
    other.load_state_dict(layer.state_dict())
    found, others = (each(X, E, TOPOLOGY)[0] for each in (layer, other))
    assert not torch.equal(found, others)
    other.layer = other.mixer.layer = 0
    assert torch.equal(found, other(X, E, TOPOLOGY)[0])


def test_layers_of_a_backbone_drop_different_entries() -> None:
    topology = random_topology((40,))
    x, e = random_rows(topology)
    seen: list[int] = []

    class Seen(nn.Module):
        def forward(self, x: Tensor, e: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
            seen.append(int(topology.dropout_seed))
            return x, e

    backbone = Backbone(GivenRows(), [Seen() for _ in range(3)])
    backbone(Data(x=x, e=e), topology)
    assert len({*seen, *backbone.dropout_seeds(topology).tolist()}) == 4


def test_all_layers_of_exphormer_drop_different_entries() -> None:
    sites = _sites(ExphormerStack(8, 3, 2, dropout=0.5))
    assert sites == [*range(len(sites))]


def _sites(module: nn.Module) -> list[int]:
    return [part.site for part in module.modules() if isinstance(part, Dropout)]

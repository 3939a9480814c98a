"""Message passing with a gate for every channel of every edge."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_fraction, check_least
from graphmamba.data.topology import Topology
from graphmamba.encode.norm import BatchNorm
from graphmamba.errors import UserError
from graphmamba.stack.options import Activation, activation_function
from graphmamba.stack.parts import LocalModel
from graphmamba.stack.segments import sum_at

EPSILON = 1e-6


class GatedGCN(LocalModel):
    r"""Residual gated graph convolution, https://arxiv.org/abs/1711.07553.

    .. math::
        \hat e_{ij} = D x_i + E x_j + C e_{ij}, \quad
        \hat x_i = A x_i + \frac{\sum_j \sigma(\hat e_{ij}) \odot B x_j}
                                {\sum_j \sigma(\hat e_{ij}) + \epsilon}

    over the edges j -> i; both sides then pass a BatchNorm, the activation, dropout and a residual.

    Args:
        channels: Width of node and edge rows.
        dropout: Rate before the residuals.
        activation: After the BatchNorms.
        has_stable_gate: Scale the gate of each edge by a learned function of the distance between
            its ends in `topology.gate_encoding` (https://arxiv.org/abs/2203.00199).
    """

    has_residual: ClassVar[bool] = True

    def __init__(
        self,
        channels: int,
        *,
        dropout: float = 0.0,
        activation: Activation = "relu",
        has_stable_gate: bool = False,
    ) -> None:
        super().__init__()
        check_least("channels", channels, 1)
        check_fraction("dropout", dropout)
        self.dropout = dropout
        self.activation = activation_function(activation)
        # The maps A, B, D, E of the node rows as one product; C is the one of the edge rows.
        self.nodes = nn.Linear(channels, 4 * channels)
        self.edges = nn.Linear(channels, channels)
        self.node_norm = BatchNorm(channels)
        self.edge_norm = BatchNorm(channels)
        self.stable_gate = _stable_gate(channels) if has_stable_gate else None

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Update node and edge rows."""
        if e is None:
            raise UserError("e must hold a row for each edge for GatedGCN, got None")
        source, target = topology.edge_index
        own, sent, to_target, to_source = self.nodes(x).chunk(4, dim=-1)
        e_hat = to_target[target] + to_source[source] + self.edges(e)
        gate = torch.sigmoid(e_hat)
        if self.stable_gate is not None:
            gate = gate * self._stability(topology)
        received = sum_at(gate * sent[source], target, x.shape[0])
        opened = sum_at(gate, target, x.shape[0])
        x_hat = own + received / (opened + EPSILON)
        return (
            self._update(x, x_hat, self.node_norm, topology.num_real_nodes),
            self._update(e, e_hat, self.edge_norm, topology.num_real_edges),
        )

    def _update(
        self,
        rows: Float[Tensor, "rows channels"],
        new: Float[Tensor, "rows channels"],
        norm: nn.Module,
        count: Int[Tensor, ""] | None,
    ) -> Float[Tensor, "rows channels"]:
        new = self.activation(norm(new, count))
        return rows + functional.dropout(new, self.dropout, self.training)

    def _stability(self, topology: Topology) -> Float[Tensor, "edges 1"]:
        place = topology.gate_encoding
        if self.stable_gate is None or place is None:
            raise UserError("topology.gate_encoding must be given for a stable gate, got None")
        source, target = topology.edge_index
        distance = (place[target] - place[source]).square().sum(dim=-1, keepdim=True)
        return self.stable_gate(distance)


def _stable_gate(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, channels), nn.ReLU(), nn.Linear(channels, 1), nn.Sigmoid())

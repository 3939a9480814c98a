"""Message passing with a gate for every channel of every edge."""

from typing import ClassVar, get_args

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_is, check_least
from graphmamba.data.topology import Topology
from graphmamba.errors import UserError
from graphmamba.nn.batch_norm import BatchNorm
from graphmamba.nn.dropout import Dropout, number_dropouts
from graphmamba.nn.options import Activation, activation_function
from graphmamba.nn.parts import LocalModel, required_edges
from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.gated_sum import gated_sum
from graphmamba.ops.options import Backend
from graphmamba.ops.segments import take_sources, take_targets


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
        backend: What runs the sums over the edges; `auto` is `fused` on a GPU and `cpu` elsewhere.
    """

    has_residual: ClassVar[bool] = True

    def __init__(
        self,
        channels: int,
        *,
        dropout: float = 0.0,
        activation: Activation = "relu",
        has_stable_gate: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        check_choice("backend", backend, get_args(Backend))
        self.backend, self.activation = backend, activation_function(activation)
        # The maps A, B, D, E of the node rows as one product; C is the one of the edge rows.
        self.nodes = nn.Linear(channels, 4 * channels)
        self.edges = nn.Linear(channels, channels)
        self.node_norm, self.edge_norm = BatchNorm(channels), BatchNorm(channels)
        self.node_dropout, self.edge_dropout = Dropout(dropout), Dropout(dropout)
        number_dropouts(self)
        self.stable_gate = _stable_gate(channels) if has_stable_gate else None

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Update node and edge rows."""
        e = required_edges(e, "GatedGCN")
        layout, seed = topology.lay_out(), topology.dropout_seed
        scale = None if self.stable_gate is None else self._stability(topology, layout)
        x_hat, e_hat = gated_sum(self.nodes(x), self.edges(e), layout, scale, backend=self.backend)
        x_new = self.activation(self.node_norm(x_hat, topology.num_real_nodes))
        x = x + self.node_dropout(x_new, seed)
        if not topology.wants_edges:
            return x, None
        e_new = self.activation(self.edge_norm(e_hat, topology.num_real_edges))
        return x, e + self.edge_dropout(e_new, seed)

    def _stability(self, topology: Topology, layout: EdgeLayout) -> Float[Tensor, " edges"]:
        place = topology.gate_encoding
        if self.stable_gate is None or place is None:
            raise UserError("topology.gate_encoding must be given for a stable gate, got None")
        difference = take_targets(place, layout) - take_sources(place, layout)
        distance = difference.square().sum(dim=-1, keepdim=True)
        return self.stable_gate(distance).squeeze(-1)


def _stable_gate(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, channels), nn.ReLU(), nn.Linear(channels, 1), nn.Sigmoid())

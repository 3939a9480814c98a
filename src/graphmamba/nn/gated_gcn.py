"""GatedGCN: message passing with a gate for every channel of every edge."""

from typing import ClassVar, get_args

from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_is, check_least
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn.base import LocalModel, required_edges
from graphmamba.nn.message_passing import center_sums
from graphmamba.nn.norm import BatchNorm, Dropout, number_dropouts
from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.backends import Backend
from graphmamba.ops.checks import check_float_type, check_rows
from graphmamba.ops.edge_layout import EdgeLayout, lay_out_edges
from graphmamba.ops.gated_sum import gated_sum
from graphmamba.ops.segments import take_sources, take_targets


class GatedGCN(LocalModel):
    r"""Residual gated graph convolution, https://arxiv.org/abs/1711.07553.

    .. math::
        \hat e_{ij} = D x_i + E x_j + C e_{ij}, \quad
        \hat x_i = A x_i + \frac{\sum_j \sigma(\hat e_{ij}) \odot B x_j}
                                {\sum_j \sigma(\hat e_{ij}) + \epsilon}

    over the edges j -> i; nodes and edges then pass a BatchNorm, the activation, dropout and a
    residual. With centred sums, the quotient is multiplied by the number of incoming edges.

    Args:
        channels: Width of node and edge embeddings.
        dropout: Rate before the residuals.
        activation: After the BatchNorms.
        has_stable_gate: Scale the gate of each edge by a learned function of the distance between
            its ends in the column `gate_encoding` (https://arxiv.org/abs/2203.00199).
        is_centered: Whether to aggregate by sums centred by degree (`center_sums`).
        backend: What runs the sums over the edges; `auto` is `triton` on a GPU and `cpu` elsewhere.
    """

    has_residual: ClassVar[bool] = True

    def __init__(
        self,
        channels: int,
        *,
        dropout: float = 0.0,
        activation: Activation = "relu",
        has_stable_gate: bool = False,
        is_centered: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.is_centered = is_centered
        check_choice("backend", backend, get_args(Backend))
        self.backend, self.activation = backend, activation_function(activation)
        # The maps A, B, D, E of the node embeddings as one product; C is the one of the edge
        # embeddings.
        self.nodes = nn.Linear(channels, 4 * channels)
        self.edges = nn.Linear(channels, channels)
        self.node_norm, self.edge_norm = BatchNorm(channels), BatchNorm(channels)
        self.node_dropout, self.edge_dropout = Dropout(dropout), Dropout(dropout)
        number_dropouts(self)
        self.stable_gate: nn.Sequential | None = None
        if has_stable_gate:
            self.stable_gate = nn.Sequential(
                nn.Linear(1, channels), nn.ReLU(), nn.Linear(channels, 1), nn.Sigmoid()
            )

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Update node and edge embeddings."""
        e = required_edges(e, "GatedGCN")
        layout, seed = topology.lay_out(), topology.dropout_seed
        scale = None if self.stable_gate is None else self._stability(topology, layout)
        maps = self.nodes(x)
        x_hat, e_hat = gated_sum(maps, self.edges(e), layout, scale, backend=self.backend)
        if self.is_centered:
            own = maps[:, : x.shape[1]]
            degree = layout.target_ptr.diff().to(x_hat.dtype)[:, None]
            x_hat = own + center_sums(degree * (x_hat - own), topology)
        x_new = self.activation(self.node_norm(x_hat, topology.num_real_nodes))
        x = x + self.node_dropout(x_new, seed)
        if not topology.wants_edges:
            return x, None
        e_new = self.activation(self.edge_norm(e_hat, topology.num_real_edges))
        return x, e + self.edge_dropout(e_new, seed)

    def _stability(self, topology: Topology, layout: EdgeLayout) -> Float[Tensor, " edges"]:
        place = topology.columns.get("gate_encoding")
        if self.stable_gate is None or place is None:
            raise UserError("topology.gate_encoding must be given for a stable gate, got None")
        difference = take_targets(place, layout) - take_sources(place, layout)
        distance = difference.square().sum(dim=-1, keepdim=True)
        return self.stable_gate(distance).squeeze(-1)


class GatedGCNConv(nn.Module):
    """`GatedGCN` for your own PyG models.

    Gates, messages and sums are one kernel forward and two backward, deterministic and without
    storing messages.

    Args:
        channels: Width of node and edge embeddings.
        dropout: Rate before the residuals.
        activation: After the BatchNorms.
        backend: What runs the sums over the edges; `auto` is `triton` on a GPU and `cpu` elsewhere.

    Example:
        >>> import torch
        >>> layer = GatedGCNConv(16)
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> x, edge_attr = layer(torch.randn(3, 16), edge_index, torch.randn(3, 16))
        >>> x.shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        *,
        dropout: float = 0.0,
        activation: Activation = "relu",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.channels = channels
        self.conv = GatedGCN(channels, dropout=dropout, activation=activation, backend=backend)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges channels"],
        source_order: Int[Tensor, " edges"] | None = None,
        check: bool | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"]]:
        """Update node and edge embeddings.

        Args:
            x: Node embeddings.
            edge_index: Sources and targets, in any order.
            edge_attr: Edge embeddings.
            source_order: For edges that lie in the order of their targets, as `GraphStore.batch`
                gives them out: their order by sources, which spares sorting them here.
            check: Whether to look at the values of `edge_index` and `source_order`; None looks at
                tensors on the CPU only, since a look at the GPU has to wait for it.
        """
        check_rows("x", x, ("nodes", self.channels))
        check_rows("edge_index", edge_index, (2, "edges"), is_integer=True)
        check_rows("edge_attr", edge_attr, (edge_index.shape[1], self.channels))
        check_float_type("x", x, self.conv.nodes.weight)
        check_float_type("edge_attr", edge_attr, self.conv.edges.weight)
        nodes, edge_index = x.shape[0], edge_index.long()
        layout = lay_out_edges(edge_index, nodes, source_order, check=check)
        whole = edge_index.new_zeros(nodes)
        out, out_edges = self.conv(
            x, edge_attr, Topology(edge_index, whole, num_graphs=1, edge_layout=layout)
        )
        return out, out_edges

"""The layer of Graph-Mamba, put together from its parts."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.checks import check_is, check_least
from graphmamba.data.topology import Topology
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gps_layer import GPSLayer
from graphmamba.nn.graph_mamba_mixer import GraphMambaMixer, InputNorm
from graphmamba.nn.mamba_block import MambaOptions
from graphmamba.nn.options import Activation, NormName
from graphmamba.nn.parts import required_edges
from graphmamba.ops.random import draw_bits
from graphmamba.ops.tensor_checks import check_float_type, check_membership, check_rows
from graphmamba.ordering.policy import OrderPolicy


class GraphMambaLayer(GPSLayer):
    """The layer of the paper: GatedGCN beside Mamba over sorted nodes.

    https://arxiv.org/abs/2402.00789. A random policy needs `topology.seed`, such as
    `order.NoiseSeed` counts up; a `Backbone` of layers gives it.

    Args:
        channels: Width of node and edge rows.
        policy: How nodes are lined up.
        options: Sizes and choices of the Mamba block.
        layer: Number of the layer in its stack, so that layers draw different line-ups and drop
            different entries.
        dropout: Rate of all dropouts.
        norm: Kind of the three norms.
        activation: Of the feed-forward network and of GatedGCN.
        input_norm: `none`, as in the published numbers, or `layer`, as in the paper's text.

    Example:
        >>> topology = Topology(
        ...     edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]),
        ...     batch=torch.zeros(3, dtype=torch.int64),
        ...     num_graphs=1,
        ...     seed=torch.tensor(0),
        ... )
        >>> x, e = GraphMambaLayer(16)(torch.randn(3, 16), torch.randn(3, 16), topology)
        >>> x.shape, e.shape
        (torch.Size([3, 16]), torch.Size([3, 16]))
    """

    def __init__(
        self,
        channels: int,
        policy: OrderPolicy | None = None,
        options: MambaOptions | None = None,
        *,
        layer: int = 0,
        dropout: float = 0.0,
        norm: NormName = "batch",
        activation: Activation = "relu",
        input_norm: InputNorm = "none",
    ) -> None:
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        super().__init__(
            channels,
            GatedGCN(channels, dropout=dropout, activation=activation),
            GraphMambaMixer(channels, policy, options, input_norm, layer),
            dropout=dropout,
            norm=norm,
            activation=activation,
        )
        self.channels, self.layer = channels, layer

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
        mixed: Float[Tensor, "nodes channels"] | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node and edge rows.

        Args:
            x: Node rows.
            e: Edge rows.
            topology: Which nodes are whose, and who is joined to whom; its values are looked at
                on the CPU alone, since a look at the GPU has to wait for it.
            mixed: What the mixer returned for `x`, where it was called before.
        """
        check_is(
            "topology", topology, Topology, "Topology(edge_index, batch, num_graphs) makes one"
        )
        check_rows("x", x, (topology.batch.shape[0], self.channels))
        check_float_type("x", x, self.widen.weight)
        e = required_edges(e, "GatedGCN")
        check_rows("e", e, (topology.edge_index.shape[1], self.channels))
        check_float_type("e", e, self.widen.weight)
        # whoever laid out the edges has looked at them
        is_new = topology.edge_layout is None and topology.batch.device.type == "cpu"
        if is_new and not torch.compiler.is_compiling():
            check_membership(topology.edge_index, topology.batch, topology.num_graphs)
        if topology.dropout_seed is not None:
            # Layers that share a seed must drop different entries.
            topology = replace(topology, drop_seed=draw_bits(topology.dropout_seed, self.layer))
        return super().forward(x, e, topology, mixed)

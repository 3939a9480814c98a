"""The layer of Graph-Mamba, put together from its parts."""

from graphmamba.order.policy import OrderPolicy
from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.stack.gps_layer import GPSLayer
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer, InputNorm
from graphmamba.stack.mamba_block import MambaOptions
from graphmamba.stack.options import Activation, NormName


class GraphMambaLayer(GPSLayer):
    """The layer of the paper: GatedGCN beside Mamba over sorted nodes.

    https://arxiv.org/abs/2402.00789. A random policy needs `topology.seed`; `Backbone` gives it.

    Args:
        channels: Width of node and edge rows.
        policy: How nodes are lined up.
        options: Sizes and choices of the Mamba block.
        layer: Number of the layer in its stack, so that layers draw different line-ups.
        dropout: Rate of all dropouts.
        norm: Kind of the three norms.
        activation: Of the feed-forward network and of GatedGCN.
        input_norm: `none`, as in the published numbers, or `layer`, as in the paper's text.
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
        super().__init__(
            channels,
            GatedGCN(channels, dropout=dropout, activation=activation),
            GraphMambaMixer(channels, policy, options, input_norm, layer),
            dropout=dropout,
            norm=norm,
            activation=activation,
        )

"""One layer: message passing and global exchange side by side, then a feed-forward network."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_fraction
from graphmamba.data.topology import Topology
from graphmamba.errors import UserError
from graphmamba.nn.dropout import Dropout, number_dropouts
from graphmamba.nn.norm import NodeNorm
from graphmamba.nn.options import Activation, NormName, activation_function
from graphmamba.nn.parts import LocalModel


class GPSLayer(nn.Module):
    r"""Local and global exchange, both from the layer's input, added up.

    .. math::
        s = N_1(\mathrm{local}(x, e)) + N_2(x + \mathrm{mixer}(x)), \quad
        x' = N_3(s + W_2 \sigma(W_1 s))

    https://arxiv.org/abs/2205.12454. A norm follows each residual sum. (The paper of Graph-Mamba
    prints no norms and no second residual; its parameter counts and its code have them.)

    Args:
        channels: Width of node and edge rows.
        local: Message passing, or None.
        mixer: Global exchange, called `mixer(x, topology)`, or None.
        dropout: Rate after the mixer, a local model without residual, and both linear maps.
        norm: Kind of all three norms.
        activation: Of the feed-forward network.
    """

    def __init__(
        self,
        channels: int,
        local: LocalModel | None,
        mixer: nn.Module | None,
        *,
        dropout: float = 0.0,
        norm: NormName = "batch",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if local is None and mixer is None:
            raise UserError("local and mixer must not both be None, got None for each")
        check_fraction("dropout", dropout)
        self.local, self.mixer = local, mixer
        self.local_norm = None if local is None else NodeNorm(norm, channels)
        self.mixer_norm = None if mixer is None else NodeNorm(norm, channels)
        self.widen = nn.Linear(channels, 2 * channels)
        self.narrow = nn.Linear(2 * channels, channels)
        self.norm = NodeNorm(norm, channels)
        self.activation = activation_function(activation)
        self.local_dropout, self.mixer_dropout = Dropout(dropout), Dropout(dropout)
        self.wide_dropout, self.narrow_dropout = Dropout(dropout), Dropout(dropout)
        number_dropouts(self)

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
            topology: The graphs.
            mixed: What the mixer returned for `x`, where it was called before.
        """
        seed = topology.dropout_seed
        parts = []
        if self.local is not None and self.local_norm is not None:
            near, e = self.local(x, e, topology)
            if not self.local.has_residual:
                near = x + self.local_dropout(near, seed)
            parts.append(self.local_norm(near, topology))
        if self.mixer is not None and self.mixer_norm is not None:
            far = self.mixer(x, topology) if mixed is None else mixed
            parts.append(self.mixer_norm(x + self.mixer_dropout(far, seed), topology))
        s = sum(parts[1:], start=parts[0])
        return self.norm(s + self.feed_forward(s, seed), topology), e

    def feed_forward(
        self, s: Float[Tensor, "nodes channels"], seed: Int[Tensor, ""] | None
    ) -> Float[Tensor, "nodes channels"]:
        """Map each node by itself."""
        wide = self.wide_dropout(self.activation(self.widen(s)), seed)  # [nodes, 2 channels]
        return self.narrow_dropout(self.narrow(wide), seed)

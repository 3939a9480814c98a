"""Layers: message passing beside a global model, with a feed-forward network or without."""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from graphmamba.checks import check_fraction
from graphmamba.data.topology import Topology
from graphmamba.errors import UserError
from graphmamba.nn.norm import Dropout, NodeNorm, NormName, number_dropouts
from graphmamba.nn.parts import LocalModel
from graphmamba.ops.activation import Activation, activation_function


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


MIXER_WEIGHT = 0.1
"""What the weights of a mixer's norm start with. There is no residual sum that its first, random
rows would be small in, and a norm would make them as large as the messages."""


class PlainLayer(nn.Module):
    r"""One local model, a mixer beside it or none, and what follows both.

    .. math::
        x' = x + \sigma(N_1(\mathrm{local}(x, e)) + N_2(\mathrm{mixer}(x)))

    What the published stacks are made of (GatedGCN is a layer by itself):

    ========== =============== ======================================================
    stack      local           this layer
    ========== =============== ======================================================
    GCN        `has_bias` off  `norm="batch"`, no residual, unit rows
    GCN tuned  `GCN`           `activation="gelu"`, dropout
    GCN+       `GCNE`          `norm="batch"`, `activation="gelu"`, dropout, no residual
    GINE       `GINE`          `activation="relu"`, dropout
    GINE tuned gelu, dropout   `activation="none"`, dropout
    ========== =============== ======================================================

    Args:
        channels: Width of the node rows.
        local: Message passing without a residual of its own.
        activation: After the norm.
        dropout: Rate after the activation.
        norm: Before the activation.
        mixer: Global exchange, called `mixer(x, topology)`, or None.
        has_residual: Whether the input is added.
        has_unit_rows: Whether each row of the result is scaled to length 1.
    """

    def __init__(
        self,
        channels: int,
        local: LocalModel,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        norm: NormName = "none",
        mixer: nn.Module | None = None,
        has_residual: bool = True,
        has_unit_rows: bool = False,
    ) -> None:
        super().__init__()
        check_fraction("dropout", dropout)
        self.local, self.mixer = local, mixer
        self.norm = NodeNorm(norm, channels)
        self.mixer_norm = None if mixer is None else NodeNorm(norm, channels, MIXER_WEIGHT)
        self.activation, self.dropout = activation_function(activation), Dropout(dropout)
        self.has_residual, self.has_unit_rows = has_residual, has_unit_rows
        number_dropouts(self)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node rows, and what the local model made of the edge rows."""
        near, e = self.local(x, e, topology)
        rows = self.norm(near, topology)
        if self.mixer is not None and self.mixer_norm is not None:
            rows = rows + self.mixer_norm(self.mixer(x, topology), topology)
        rows = self.dropout(self.activation(rows), topology.dropout_seed)
        new = x + rows if self.has_residual else rows
        return normalize(new, dim=-1) if self.has_unit_rows else new, e

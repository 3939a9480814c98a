"""Layers without a feed-forward network: message passing, and a mixer beside it if there is one."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from graphmamba.checks import check_fraction
from graphmamba.data.topology import Topology
from graphmamba.nn.dropout import Dropout, number_dropouts
from graphmamba.nn.norm import NodeNorm
from graphmamba.nn.options import Activation, NormName, activation_function
from graphmamba.nn.parts import LocalModel

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

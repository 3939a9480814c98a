"""Layers of pure message passing, for the baselines without global exchange."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_fraction
from graphmamba.data.topology import Topology
from graphmamba.encode.unit_rows import unit_rows
from graphmamba.stack.norm import NodeNorm
from graphmamba.stack.options import Activation, NormName, activation_function
from graphmamba.stack.parts import LocalModel


class PlainLayer(nn.Module):
    r"""One local model and what follows it: :math:`x' = x + \sigma(N(\mathrm{local}(x, e)))`.

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
        has_residual: bool = True,
        has_unit_rows: bool = False,
    ) -> None:
        super().__init__()
        check_fraction("dropout", dropout)
        self.local = local
        self.norm = NodeNorm(norm, channels)
        self.activation, self.dropout = activation_function(activation), dropout
        self.has_residual, self.has_unit_rows = has_residual, has_unit_rows

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node rows, and what the local model made of the edge rows."""
        near, e = self.local(x, e, topology)
        near = self.activation(self.norm(near, topology))
        near = functional.dropout(near, self.dropout, self.training)
        new = x + near if self.has_residual else near
        return unit_rows(new) if self.has_unit_rows else new, e

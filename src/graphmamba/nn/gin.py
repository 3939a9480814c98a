"""The graph isomorphism network, with edge embeddings (GINE) and without (GIN)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_is, check_least
from graphmamba.data.batch import Topology
from graphmamba.nn.base import LocalModel, required_edges
from graphmamba.nn.centered_sums import center_sums
from graphmamba.nn.norm import Dropout
from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.segments import sum_at_targets, take_sources


class GINE(LocalModel):
    r"""Sum of neighbours through a two-layer perceptron, https://arxiv.org/abs/1905.12265.

    .. math::
        x'_i = \mathrm{MLP}\Big(x_i + \sum_{j \to i} \mathrm{ReLU}(x_j + e_{ij})\Big)

    Args:
        channels: Width of node and edge embeddings.
        activation: Between the two layers.
        dropout: Rate after that activation.
        reads_edges: False gives GIN, which sums the neighbours' rows as they are.
        is_centered: Whether the sum is centred by degree (`center_sums`).
    """

    def __init__(
        self,
        channels: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        reads_edges: bool = True,
        is_centered: bool = False,
    ) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.activation, self.dropout = activation_function(activation), Dropout(dropout)
        self.reads_edges, self.is_centered = reads_edges, is_centered
        self.first = nn.Linear(channels, channels)
        self.second = nn.Linear(channels, channels)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Add up the neighbours; edge embeddings are passed on as they are."""
        layout = topology.lay_out()
        message = take_sources(x, layout)
        if self.reads_edges:
            message = functional.relu(message + required_edges(e, "GINE"))
        received = sum_at_targets(message, layout)
        if self.is_centered:
            received = center_sums(received, topology)
        hidden = self.activation(self.first(x + received))
        return self.second(self.dropout(hidden, topology.dropout_seed)), e

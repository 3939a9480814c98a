"""Structure around a node from random walks that come back to it."""

from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.data.columns import column
from graphmamba.nn.encoder_config import RandomWalkConfig
from graphmamba.nn.mlp import relu_mlp
from graphmamba.nn.norm import BatchNorm, NoNorm


class RandomWalkEncoder(nn.Module):
    """RWSE: a linear layer or an MLP on the return probabilities after 1, 2, ... steps.

    Reads `random_walk`. See https://arxiv.org/abs/2110.07875.
    """

    def __init__(self, config: RandomWalkConfig) -> None:
        super().__init__()
        self.walks = config.walks
        self.channels = config.channels
        self.norm = BatchNorm(config.walks) if config.has_norm else NoNorm()
        self.network = (
            nn.Linear(config.walks, config.channels)
            if config.form == "linear"
            else relu_mlp(config.walks, config.channels, config.layers)
        )

    def forward(self, graphs: Data) -> Float[Tensor, "nodes channels"]:
        """Encode every node of the batch."""
        walks = graphs.random_walk[:, : self.walks]
        return self.network(self.norm(walks, column(graphs, "num_real_nodes")))

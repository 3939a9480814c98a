"""GraphSAGE: the mean of the neighbours beside a map of the node itself."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_is, check_least
from graphmamba.data.batch import Topology
from graphmamba.nn.base import LocalModel
from graphmamba.ops.neighbor_sum import sum_neighbors


class SAGE(LocalModel):
    r"""GraphSAGE with the mean, https://arxiv.org/abs/1706.02216.

    .. math::
        x'_i = W_{self} x_i + W \frac{1}{d_i} \sum_{j \to i} x_j + b

    with d the number of incoming edges; a node without any gets its own map alone. What a node is
    and what its neighbours are stays apart, which is what graphs need where neighbours differ.
    Edge embeddings are passed on unread.

    Args:
        channels: Width of the node embeddings.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.own = nn.Linear(channels, channels)
        self.neighbors = nn.Linear(channels, channels, bias=False)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Average over neighbours."""
        layout = topology.lay_out()
        degree = layout.target_ptr.diff().clamp_min(1)[:, None]  # [nodes, 1]
        mean = sum_neighbors(x, layout) / degree
        return torch.addmm(self.own(x), mean, self.neighbors.weight.T), e

"""The graph convolution with symmetric normalisation."""

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_is, check_least
from graphmamba.data.topology import Topology
from graphmamba.nn.parts import LocalModel
from graphmamba.ops.segments import sum_at_targets, take_sources


class GCN(LocalModel):
    r"""Graph convolution, https://arxiv.org/abs/1609.02907.

    .. math::
        x'_i = W \sum_{j \to i} \frac{x_j}{\sqrt{d_i d_j}} + \frac{W x_i}{d_i}

    with d the number of incoming edges plus one. Every node has exactly one edge to itself,
    whatever self-loops the data has. Edge rows are passed on unread.

    Args:
        channels: Width of the node rows.
        has_bias: Whether a bias is added.
    """

    def __init__(self, channels: int, *, has_bias: bool = True) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.linear = nn.Linear(channels, channels, bias=has_bias)
        nn.init.xavier_uniform_(self.linear.weight)
        if has_bias:
            nn.init.zeros_(self.linear.bias)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Average over neighbours."""
        source, target = topology.edge_index
        is_real = (source != target).to(x.dtype)[:, None]  # [edges, 1]
        layout = topology.lay_out()
        scale = (1 + sum_at_targets(is_real, layout)).rsqrt()  # [nodes, 1]
        scaled = x * scale
        received = scaled + sum_at_targets(take_sources(scaled, layout) * is_real, layout)
        return self.linear(received * scale), e

"""Full attention among the nodes of each graph."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_divides, check_fraction
from graphmamba.data.topology import Topology
from graphmamba.encode.linear import Linear
from graphmamba.pack.dense import DenseLayout
from graphmamba.stack.parts import GlobalMixer


class Attention(GlobalMixer):
    """Multi-head scaled dot-product attention, https://arxiv.org/abs/1706.03762.

    Args:
        channels: Width of the node rows.
        heads: Attention heads; must divide the channels.
        dropout: Rate on the attention weights.
    """

    def __init__(self, channels: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_divides("heads", heads, "channels", channels)
        check_fraction("dropout", dropout)
        self.heads, self.dropout = heads, dropout
        self.in_proj = Linear(channels, 3 * channels)
        self.out_proj = Linear(channels, channels)
        # The initial values of torch.nn.MultiheadAttention, which the published runs used.
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Let every node attend to all nodes of its graph."""
        layout = DenseLayout.of(topology)
        rows = self.in_proj(x).unflatten(-1, (3, self.heads, -1))
        dense = layout.pad(rows)  # [graphs, longest, 3, heads, width]
        query, key, value = dense.permute(2, 0, 3, 1, 4)
        is_seen = layout.mask()[:, None, None, :]  # [graphs, 1, 1, longest]
        # Rows of padding see what is there, or all of nothing: their softmax must not be NaN.
        is_seen = is_seen | ~is_seen.any(dim=-1, keepdim=True)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_seen, dropout_p=self.dropout if self.training else 0.0
        )
        return self.out_proj(layout.unpad(mixed.transpose(1, 2)).flatten(1))

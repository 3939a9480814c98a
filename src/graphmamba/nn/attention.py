"""Full attention among the nodes of each graph."""

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_divides, check_fraction
from graphmamba.data.topology import Topology
from graphmamba.nn.dense import DenseLayout
from graphmamba.nn.parts import GlobalMixer

ALIGNED = 16
"""Bytes that rows of a head must be a multiple of for the kernels that keep no weights."""


class Attention(GlobalMixer):
    """Multi-head scaled dot-product attention, https://arxiv.org/abs/1706.03762.

    Graphs are laid out in padded blocks, and padding is masked. Dropout is drawn from torch's
    generator of the device.

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
        self.in_proj = nn.Linear(channels, 3 * channels)
        self.out_proj = nn.Linear(channels, channels)
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
        width = rows.shape[-1]
        # Heads of another width would have all weights written out.
        rest = -width % (ALIGNED // rows.element_size()) if rows.is_cuda else 0
        if rest:
            rows = functional.pad(rows, (0, rest))
        blocks = zip(layout.pad(rows), layout.is_seen, strict=True)
        mixed = [self._attend(dense, is_seen, width) for dense, is_seen in blocks]
        return self.out_proj(layout.unpad(mixed)[..., :width].flatten(1))

    def _attend(
        self,
        dense: Float[Tensor, "graphs longest 3 heads width"],
        is_seen: Bool[Tensor, "graphs longest"],
        width: int,
    ) -> Float[Tensor, "graphs longest heads width"]:
        """Attend within each graph of a block; `width` is that of a head without padding."""
        query, key, value = dense.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            *(query, key, value, is_seen[:, None, None, :]),
            dropout_p=self.dropout if self.training else 0.0,
            scale=width**-0.5,
        )
        return mixed.transpose(1, 2)

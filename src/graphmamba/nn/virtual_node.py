"""A node that hears all nodes of its graph, and tells them what it made of it."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from graphmamba.data.batch import Topology
from graphmamba.ops.segments import sum_segments, take_rows


class VirtualNode(nn.Module):
    r"""One row for each graph, carried from layer to layer (https://arxiv.org/abs/1704.01212).

    .. math::
        v^{l+1} = W_2\,\mathrm{ReLU}\Big(\mathrm{LN}\big(W_1 (v^l + \sum_i x_i)\big)\Big), \quad
        x'_i = x_i + v^{l+1}

    over the nodes of each graph, starting from zeros. LN is a LayerNorm: a BatchNorm would have few
    rows to go by, one for each graph of a batch.

    Args:
        channels: Width of the rows.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        v: Float[Tensor, "graphs channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "graphs channels"]]:
        """Return new node embeddings and the row of each graph; `v` is None before the first."""
        ptr, batch = topology.starts(), topology.batch
        total = sum_segments(x, batch, ptr)
        hidden = self.fc1(total if v is None else v + total)
        v = self.fc2(relu(self.norm(hidden)))
        return x + take_rows(v, batch, ptr), v

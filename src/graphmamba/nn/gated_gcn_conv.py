"""GatedGCN as a layer of PyTorch Geometric: node rows, edges and edge rows in, rows out."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.data.topology import Topology
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.options import Activation
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.options import Backend
from graphmamba.ops.tensor_checks import check_float_type, check_rows


class GatedGCNConv(nn.Module):
    """`GatedGCN` by itself, for graphs of any origin.

    Gates, messages and sums over the edges of a node are one kernel forward and two backward, which
    keep no message and give the same bits whenever they run again.

    Args:
        channels: Width of node and edge rows.
        dropout: Rate before the residuals.
        activation: After the BatchNorms.
        backend: What runs the sums over the edges; `auto` is `fused` on a GPU and `cpu` elsewhere.

    Example:
        >>> import torch
        >>> layer = GatedGCNConv(16)
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> x, edge_attr = layer(torch.randn(3, 16), edge_index, torch.randn(3, 16))
        >>> x.shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        *,
        dropout: float = 0.0,
        activation: Activation = "relu",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.channels = channels
        self.conv = GatedGCN(channels, dropout=dropout, activation=activation, backend=backend)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges channels"],
        source_order: Int[Tensor, " edges"] | None = None,
        check: bool | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"]]:
        """Update node and edge rows.

        Args:
            x: Node rows.
            edge_index: Sources and targets, in any order.
            edge_attr: Edge rows.
            source_order: For edges that lie in the order of their targets, as `GraphStore.batch`
                gives them out: their order by sources, which spares sorting them here.
            check: Whether to look at the values of `edge_index` and `source_order`; None looks at
                tensors on the CPU only, since a look at the GPU has to wait for it.
        """
        check_rows("x", x, ("nodes", self.channels))
        check_rows("edge_index", edge_index, (2, "edges"), is_integer=True)
        check_rows("edge_attr", edge_attr, (edge_index.shape[1], self.channels))
        check_float_type("x", x, self.conv.nodes.weight)
        check_float_type("edge_attr", edge_attr, self.conv.edges.weight)
        nodes, edge_index = x.shape[0], edge_index.long()
        layout = lay_out_edges(edge_index, nodes, source_order, check=check)
        whole = edge_index.new_zeros(nodes)
        out, out_edges = self.conv(
            x, edge_attr, Topology(edge_index, whole, num_graphs=1, edge_layout=layout)
        )
        return out, out_edges

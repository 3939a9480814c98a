"""Sparse attention along real edges, expander edges and virtual nodes."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_divides
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn.base import Edges, Nodes, required_edges
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gps import GPSLayer
from graphmamba.nn.norm import NormName, number_dropouts
from graphmamba.ops.activation import Activation
from graphmamba.ops.backends import TRITON_TYPES, TritonBackend
from graphmamba.ops.edge_attention import AttentionGraph, attend, attention_graph


@dataclass(frozen=True)
class AttentionEdges:
    """Edges of the attention; virtual nodes are numbered behind the real ones."""

    wires: AttentionGraph
    """Rows of the real edges first, then one per kind of the other edges."""
    features: Float[Tensor, "features channels"]
    """Encoded embeddings of the real edges, the same for all layers, then a learned one per kind of
    the other edges."""


class ExphormerAttention(nn.Module):
    r"""Attention along given edges, with edge embeddings in the score.

    .. math::
        w_{ij} = \exp \mathrm{clamp}(\langle k_j \odot q_i / \sqrt{c}, e_{ij} \rangle, -5, 5), \quad
        x'_i = \frac{\sum_j w_{ij} v_j}{\sum_j w_{ij} + \epsilon}

    https://arxiv.org/abs/2303.06147. There is no output projection.

    Args:
        channels: Width of the rows.
        heads: Attention heads; must divide the channels.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        check_divides("heads", heads, "channels", channels)
        self.heads = heads
        self.nodes = nn.Linear(channels, 3 * channels, bias=False)
        self.edges = nn.Linear(channels, channels, bias=False)

    def forward(
        self, rows: Float[Tensor, "rows channels"], edges: AttentionEdges
    ) -> Float[Tensor, "rows channels"]:
        """Attend along the incoming edges; 0 for nodes without any."""
        return attend(self.nodes(rows), self.edges(edges.features), edges.wires, self.heads)


class ExphormerStack(nn.Module):
    """All layers of an Exphormer, GatedGCN beside sparse attention; called as one layer.

    The layers share the edges of the attention, made once, and virtual nodes, whose embeddings pass
    from attention to attention without residual or norm.

    Args:
        channels: Width of node and edge embeddings.
        layers: Number of layers.
        heads: Attention heads; must divide the channels.
        dropout: Rate of all dropouts.
        has_expander: Whether to attend along `expander_index`. Its learned embedding exists either
            way, as in the published parameter counts.
        virtual_nodes: Virtual nodes per graph, with edges to and from all its nodes.
        has_stable_gate: Whether GatedGCN reads the column `gate_encoding`.
        norm: Kind of the three norms of each layer.
        activation: Of the feed-forward networks and of GatedGCN.
    """

    backend: TritonBackend = "auto"
    """Backend of the attention; Triton kernels need float32 or shorter types."""

    def __init__(
        self,
        channels: int,
        layers: int,
        heads: int,
        *,
        dropout: float = 0.0,
        has_expander: bool = True,
        virtual_nodes: int = 0,
        has_stable_gate: bool = False,
        norm: NormName = "batch",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.has_expander, self.virtual_nodes = has_expander, virtual_nodes
        self.virtual = nn.Parameter(torch.randn(virtual_nodes, channels))
        # One kind of expander edge, then those into each virtual node, then those out of each.
        self.kinds = nn.Parameter(torch.randn(1 + 2 * virtual_nodes, channels))
        self.layers = nn.ModuleList(
            GPSLayer(
                channels,
                GatedGCN(
                    channels,
                    dropout=dropout,
                    activation=activation,
                    has_stable_gate=has_stable_gate,
                ),
                ExphormerAttention(channels, heads),
                dropout=dropout,
                norm=norm,
                activation=activation,
            )
            for _ in range(layers)
        )
        number_dropouts(self)

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        edges = self._wire(required_edges(e, "Exphormer"), topology)
        virtual = self.virtual.repeat_interleave(topology.num_graphs, dim=0)
        for module in self.layers:
            layer = cast(GPSLayer, module)
            mixed = cast(nn.Module, layer.global_model)(torch.cat([x, virtual]), edges)
            mixed, virtual = mixed.split([x.shape[0], virtual.shape[0]])
            is_read = topology.wants_edges or module is not self.layers[-1]
            reading = replace(topology, wants_edges=is_read)
            x, e = layer(x, e, reading, mixed)
        return x, e

    def _wire(self, e: Edges, topology: Topology) -> AttentionEdges:
        """Concatenate real edges, expander edges and those of the virtual nodes."""
        index, kind = [topology.edge_index], []
        if self.has_expander:
            expanders = topology.columns.get("expander_index")
            if expanders is None:
                raise UserError("topology.expander_index must be given for Exphormer, got None")
            index.append(expanders)
            kind.append(torch.zeros_like(expanders[0]))
        nodes = torch.arange(topology.batch.shape[0], device=e.device)
        for v in range(self.virtual_nodes):
            hub = nodes.shape[0] + v * topology.num_graphs + topology.batch
            if topology.num_real_nodes is not None:
                # The padding has as many nodes as are left, which would have to wait for each other
                # at its hub: each attends to itself instead, and nobody sees it.
                hub = torch.where(nodes < topology.num_real_nodes, hub, nodes)
            index += [torch.stack([nodes, hub]), torch.stack([hub, nodes])]
            into = torch.full_like(nodes, 1 + v)
            kind += [into, into + self.virtual_nodes]
        own = torch.arange(e.shape[0], device=e.device)
        wires = attention_graph(
            torch.cat(index, dim=1),
            torch.cat([own, *(each + e.shape[0] for each in kind)]),
            nodes=nodes.shape[0] + self.virtual_nodes * topology.num_graphs,
            shared=self.kinds.shape[0],
            backend=self.backend if e.dtype in TRITON_TYPES else "reference",
        )
        return AttentionEdges(wires, torch.cat([e, self.kinds.to(e.dtype)]))

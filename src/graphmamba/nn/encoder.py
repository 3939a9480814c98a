"""From the raw columns of a batch to node rows and edge rows of the model's width."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize, relu
from torch_geometric.data import Data

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, Features
from graphmamba.data.columns import column
from graphmamba.errors import UserError
from graphmamba.nn.categories import CategoryEncoder
from graphmamba.nn.encoder_config import EncoderConfig
from graphmamba.nn.laplacian import GateEncoder, LaplacianEncoder
from graphmamba.nn.norm import BatchNorm, NoNorm
from graphmamba.nn.numbers import NumberEncoder
from graphmamba.nn.random_walk import RandomWalkEncoder
from graphmamba.nn.superpixels import EDGE_STATISTICS, NODE_STATISTICS


@dataclass(frozen=True)
class Encoded:
    """What the layers start from."""

    x: Float[Tensor, "nodes channels"]
    e: Float[Tensor, "edges channels"] | None
    """Edge rows; none where no layer reads them."""
    gate: Float[Tensor, "nodes channels"] | None
    """Positions for the gates of GatedGCN; none where they are not asked for."""


class Concat(nn.Module):
    """Node features and any number of positional encodings, side by side."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, graphs: Data) -> Float[Tensor, "nodes channels"]:
        """Run every part on the same batch."""
        return torch.cat([part(graphs) for part in self.parts], dim=-1)


class NodeFeatures(nn.Module):
    """The encoder of the set's own node columns."""

    def __init__(self, features: Features, channels: int, config: EncoderConfig) -> None:
        super().__init__()
        self.network: nn.Module = (
            CategoryEncoder(ATOM_VOCABULARY, channels)
            if features.nodes == "atoms"
            else NumberEncoder(
                features.node_columns, channels, NODE_STATISTICS.get(config.standardization)
            )
        )

    def forward(self, graphs: Data) -> Float[Tensor, "nodes channels"]:
        """Encode the column `x`."""
        return self.network(graphs.x)


class EdgeFeatures(nn.Module):
    """The encoder of the set's own edge columns."""

    def __init__(self, features: Features, channels: int, config: EncoderConfig) -> None:
        super().__init__()
        self.network: nn.Module = (
            CategoryEncoder(BOND_VOCABULARY, channels)
            if features.edges == "bonds"
            else NumberEncoder(
                features.edge_columns, channels, EDGE_STATISTICS.get(config.standardization)
            )
        )

    def forward(self, graphs: Data) -> Float[Tensor, "edges channels"]:
        """Encode the column `edge_attr`."""
        return self.network(graphs.edge_attr)


class DummyEdges(nn.Module):
    """One learned vector for every edge of a set without edge columns."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, channels))

    def forward(self, graphs: Data) -> Float[Tensor, "edges channels"]:
        """Repeat the vector."""
        return self.weight.repeat(graphs.edge_index.shape[1], 1)


class PreLayer(nn.Module):
    """A dense layer before the graph layers: linear, BatchNorm, ReLU, rows to length 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, channels, bias=False)
        self.norm = BatchNorm(channels)

    def forward(
        self, x: Float[Tensor, "nodes channels"], count: Int[Tensor, ""] | None = None
    ) -> Float[Tensor, "nodes channels"]:
        """Transform every node by itself; those after the first `count` are padding."""
        return normalize(relu(self.norm(self.linear(x), count)), dim=-1)


class RowEncoder(nn.Sequential):
    """An encoder called with the batch, then layers called `layer(rows, count of real rows)`."""

    def forward(  # type: ignore[override]
        self, graphs: Data, count: Int[Tensor, ""] | None
    ) -> Float[Tensor, "rows channels"]:
        """Encode the columns of the batch."""
        encoder, *layers = self
        rows = encoder(graphs)
        for layer in layers:
            rows = layer(rows, count)
        return rows


class GraphEncoder(nn.Module):
    """Node encoder, edge encoder, and what may follow them.

    Args:
        features: The raw columns of the data.
        channels: Width of the model; positional encodings take their part of it.
        config: Which encoders there are.
    """

    def __init__(self, features: Features, channels: int, config: EncoderConfig) -> None:
        super().__init__()
        own_channels = channels - config.position_channels
        if own_channels < 1:
            raise UserError(
                f"channels must be more than the {config.position_channels} that the positional "
                f"encodings take, got {channels}"
            )
        parts: list[nn.Module] = [NodeFeatures(features, own_channels, config)]
        if config.laplacian:
            parts.append(LaplacianEncoder(config.laplacian))
        if config.random_walk:
            parts.append(RandomWalkEncoder(config.random_walk))
        self.nodes = RowEncoder(
            Concat(*parts),
            BatchNorm(channels) if config.has_node_norm else NoNorm(),
            *[PreLayer(channels) for _ in range(config.pre_layers)],
        )
        self.edges = _edge_encoder(features, channels, config) if config.has_edges else None
        self.gate = (
            GateEncoder(config.gate_frequencies, channels) if config.gate_frequencies else None
        )

    def forward(self, graphs: Data) -> Encoded:
        """Encode the columns of the batch."""
        x = self.nodes(graphs, column(graphs, "num_real_nodes"))
        e = None
        if self.edges is not None:
            e = self.edges(graphs, column(graphs, "num_real_edges"))
        gate = None if self.gate is None else self.gate(graphs)
        return Encoded(x, e, gate)


def _edge_encoder(features: Features, channels: int, config: EncoderConfig) -> RowEncoder:
    encoder = (
        DummyEdges(channels)
        if features.edges == "none"
        else EdgeFeatures(features, channels, config)
    )
    return RowEncoder(encoder, BatchNorm(channels) if config.has_edge_norm else NoNorm())

"""From raw columns to node rows: the encoder, then the layers."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.data.topology import Topology
from graphmamba.nn.attention import Attention, DenseLayout
from graphmamba.nn.bigbird import BigBird, BlockPattern
from graphmamba.nn.graph_mamba import GraphMambaMixer
from graphmamba.nn.parts import LocalModel
from graphmamba.nn.performer import Performer
from graphmamba.ordering.permutation import LineUp, line_ups_of
from graphmamba.ordering.seed import NoiseSeed


class Backbone(nn.Module):
    """Encoder and layers.

    Args:
        encoder: Called with the batch; returns `Encoded` rows of nodes and edges.
        layers: Each is called `layer(x, e, topology) -> (x, e)`.
        seed: What the random orders and dropouts of all layers are drawn from.
    """

    def __init__(self, encoder: nn.Module, layers: Iterable[nn.Module], *, seed: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleList(layers)
        self.noise_seed = NoiseSeed(seed)
        parts = list(self.layers.modules())
        self._reads_layout = any(isinstance(part, LocalModel) for part in parts)
        self._pads = any(isinstance(part, Attention | Performer) for part in parts)
        self._patterns = {part.request() for part in parts if isinstance(part, BigBird)}

    def forward(self, graphs: Data, topology: Topology) -> Float[Tensor, "nodes channels"]:
        """Encode the batch and run it through all layers.

        One seed serves the whole pass: drawn here, outside of the layers, it stays the same when
        activation checkpointing runs a layer a second time. A seed in `topology` comes first.
        """
        if topology.seed is None:
            topology = replace(topology, seed=self.noise_seed())
        line_ups, seeds = self._line_ups(topology), self.dropout_seeds(topology)
        encoded = self.encoder(graphs)
        topology = self._for_layers(topology, encoded.gate)
        x, e = encoded.x, encoded.e
        for number, layer in enumerate(self.layers):
            # Heads read nodes alone, so that nobody misses the last edges.
            wants_edges = number + 1 < len(self.layers)
            own = replace(topology, line_up=line_ups[number], wants_edges=wants_edges)
            x, e = layer(x, e, own if seeds is None else replace(own, drop_seed=seeds[number]))
        return x

    def dropout_seeds(self, topology: Topology) -> Int[Tensor, " parts"] | None:
        """Return what the dropouts of each layer, and of a head, follow; None in evaluation."""
        if not self.training or topology.seed is None:
            return None
        return self.noise_seed.of_dropouts(topology.seed, len(self.layers) + 1)

    def _for_layers(
        self, topology: Topology, gate: Float[Tensor, "nodes channels"] | None
    ) -> Topology:
        """Find once what all layers read, and leave out what none does."""
        patterns = None
        if self._patterns and topology.batch.shape[0] and not torch.compiler.is_compiling():
            patterns = {asked: BlockPattern.of(topology, *asked) for asked in self._patterns}
        return replace(
            topology,
            gate_encoding=gate,
            edge_layout=topology.lay_out() if self._reads_layout else None,
            dense_layout=DenseLayout.of(topology) if self._pads else None,
            block_patterns=patterns,
        )

    def _line_ups(self, topology: Topology) -> list[LineUp | None]:
        """Order the nodes for all layers together; None for a layer that does not ask for one."""
        requests = []
        for layer in self.layers:
            asked = [
                part.request() for part in layer.modules() if isinstance(part, GraphMambaMixer)
            ]
            requests.append(asked[0] if len(asked) == 1 else None)
        # A compiler fuses what the layers do by themselves, and cannot look into a table.
        if torch.compiler.is_compiling():
            return [None] * len(requests)
        made = line_ups_of([request for request in requests if request], topology)
        return [made[request] if request else None for request in requests]

"""From raw columns to node rows: the encoder, then the layers."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.data.topology import Topology
from graphmamba.encode.norm import number_norms
from graphmamba.order.line_up import LineUp
from graphmamba.order.line_ups import Request, line_ups_of
from graphmamba.order.seed import NoiseSeed
from graphmamba.pack.dense import DenseLayout
from graphmamba.side_streams import Branch, join_lanes
from graphmamba.stack.attention import Attention
from graphmamba.stack.big_bird import BigBird
from graphmamba.stack.block_pattern import BlockPattern
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.parts import LocalModel
from graphmamba.stack.performer import Performer


class Backbone(nn.Module):
    """Encoder and layers.

    Args:
        encoder: Called with the batch; returns `Encoded` rows of nodes and edges.
        layers: Each is called `layer(x, e, topology) -> (x, e)`.
        seed: What the random line-ups and dropouts of all layers are drawn from.
    """

    def __init__(self, encoder: nn.Module, layers: Iterable[nn.Module], *, seed: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleList(layers)
        self.noise_seed = NoiseSeed(seed)
        number_norms(self)
        self._reads_layout = any(isinstance(part, LocalModel) for part in self.layers.modules())
        self._pads = any(isinstance(part, Attention | Performer) for part in self.layers.modules())
        self._patterns = {
            part.request() for part in self.layers.modules() if isinstance(part, BigBird)
        }
        self._mixers = [part for part in self.layers.modules() if isinstance(part, GraphMambaMixer)]

    def forward(self, graphs: Data, topology: Topology) -> Float[Tensor, "nodes channels"]:
        """Encode the batch and run it through all layers.

        One seed serves the whole pass: drawn here, outside of the layers, it stays the same when
        activation checkpointing runs a layer a second time. A seed in `topology` comes first.
        """
        seed = self.noise_seed() if topology.seed is None else topology.seed
        topology = replace(topology, seed=seed, drop_seed=self.noise_seed.of_dropouts(seed))
        # Beside the encoder, which they do not read.
        branch = Branch([seed], is_on=bool(self._mixers))
        with branch:
            topology = replace(topology, line_ups=self._line_ups(topology))
        encoded = self.encoder(graphs)
        layout = topology.lay_out() if self._reads_layout else None
        dense = DenseLayout.of(topology) if self._pads else None
        topology = replace(
            topology, gate_encoding=encoded.gate, edge_layout=layout, dense_layout=dense
        )
        branch.join(*(each for mixer in self._mixers for each in mixer.reads(topology)))
        if self._patterns and topology.batch.shape[0] and not torch.compiler.is_compiling():
            patterns = {asked: BlockPattern.of(topology, *asked) for asked in self._patterns}
            topology = replace(topology, block_patterns=patterns)
        x, e = encoded.x, encoded.e
        for number, layer in enumerate(self.layers, start=1):
            # Heads read nodes alone, so that nobody misses the last edges.
            x, e = layer(x, e, replace(topology, wants_edges=number < len(self.layers)))
        join_lanes()
        return x

    def _line_ups(self, topology: Topology) -> dict[Request, LineUp] | None:
        # A compiler fuses the line-ups of the layers by itself, and cannot look into this table.
        if not self._mixers or torch.compiler.is_compiling():
            return None
        return line_ups_of([mixer.request() for mixer in self._mixers], topology)

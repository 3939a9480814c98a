"""Prediction heads for graphs, nodes and links."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import relu

from graphmamba.checks import check_fraction, check_least, check_types
from graphmamba.data.batch import Topology
from graphmamba.data.catalog import Task
from graphmamba.data.tables import DESCRIPTORS
from graphmamba.errors import UserError
from graphmamba.nn.base import Nodes
from graphmamba.nn.encoders import LARGEST_INPUT, Standardize, Statistics
from graphmamba.nn.norm import Dropout, number_dropouts
from graphmamba.ops.l2_normalize import l2_normalize
from graphmamba.ops.segments import max_segments, sum_segments

Reduction = Literal["mean", "max", "sum"]
Pooling = Literal["mean", "max", "sum", "mean+max", "mean+sum"]
POOLED: dict[Pooling, tuple[Reduction, ...]] = {
    "mean": ("mean",),
    "max": ("max",),
    "sum": ("sum",),
    "mean+max": ("mean", "max"),
    "mean+sum": ("mean", "sum"),
}
"""Poolings that are concatenated."""
Activation = Literal["relu", "gelu"]

ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


@dataclass(frozen=True)
class HeadConfig:
    """Options of the prediction head."""

    layers: int = 1
    """Linear layers, the output layer included."""
    pooling: Pooling = "mean"
    """Pooling of node embeddings, for graph-level targets; two poolings are concatenated."""
    sum_divisor: float = 1.0
    """Divisor of sum pooling, such as the usual number of nodes."""
    has_hidden_norm: bool = True
    """L2-normalise hidden embeddings, as the published models do by a default of their
    framework."""
    activation: Activation = "relu"
    """Activation of hidden layers."""
    dropout: float = 0.0
    """Dropout before each linear layer."""

    def __post_init__(self) -> None:
        check_types(self, "head.")
        check_least("head.layers", self.layers, 1)
        check_fraction("head.dropout", self.dropout)
        if not 0 < self.sum_divisor < math.inf:
            raise UserError(
                f"head.sum_divisor must be positive and finite, got {self.sum_divisor!r}"
            )


class UnitLength(nn.Module):
    """L2 normalisation of each row; rows of zeros stay."""

    def forward(self, x: Float[Tensor, "rows channels"]) -> Float[Tensor, "rows channels"]:
        return l2_normalize(x)


class Mlp(nn.Sequential):
    """MLP: hidden layers of one width, then a linear layer.

    Args:
        channels: Width of the hidden layers, and of the input unless `inputs` is given.
        outputs: Width of the result.
        config: Depth, activation, dropout and row normalisation of the hidden layers.
        inputs: Width of the input.
    """

    def __init__(
        self, channels: int, outputs: int, config: HeadConfig, inputs: int | None = None
    ) -> None:
        widths = [inputs or channels, *[channels] * (config.layers - 1), outputs]
        parts: list[nn.Module] = []
        for place, (before, after) in enumerate(pairwise(widths)):
            parts += [Dropout(config.dropout)] if config.dropout else []
            parts.append(nn.Linear(before, after))
            if place + 1 < config.layers:
                parts.append(ACTIVATIONS[config.activation]())
                parts += [UnitLength()] if config.has_hidden_norm else []
        super().__init__(*parts)
        number_dropouts(self)

    def forward(
        self, x: Float[Tensor, "rows channels"], seed: Int[Tensor, ""] | None = None
    ) -> Float[Tensor, "rows outputs"]:
        for part in self:
            x = part(x, seed) if isinstance(part, Dropout) else part(x)
        return x


class GraphDescriptors(nn.Module):
    """Predict each graph from its descriptors, standardised by the training graphs.

    Args:
        columns: Number of descriptors of a graph.
        outputs: Width of the prediction.
    """

    def __init__(self, columns: int, outputs: int) -> None:
        super().__init__()
        untold = Statistics((0.0,) * columns, (1.0,) * columns)
        self.standardize = Standardize(untold, LARGEST_INPUT)
        self.fc1, self.fc2 = nn.Linear(columns, DESCRIBED), nn.Linear(DESCRIBED, outputs)
        self.dropout = Dropout(DESCRIBED_DROPOUT)

    def forward(
        self, graph_attr: Float[Tensor, "graphs columns"], seed: Int[Tensor, ""] | None
    ) -> Float[Tensor, "graphs outputs"]:
        return self.fc2(self.dropout(relu(self.fc1(self.standardize(graph_attr))), seed))


DESCRIBED, DESCRIBED_DROPOUT = 128, 0.3
"""Width and dropout of the hidden layer on descriptors."""


class GraphHead(nn.Module):
    r"""Pool each graph, then predict.

    If graphs have descriptors :math:`u`, two predictions are averaged:

    .. math:: \hat y = \tfrac12 f(\mathrm{pool}(x)) + \tfrac12 g(u)

    In training, each graph is predicted by one of the two, chosen at random, so that each is
    trained by itself, like members of an ensemble. Trained together, :math:`g` would leave nothing
    to learn for :math:`f`.
    """

    def __init__(
        self, channels: int, task: Task, config: HeadConfig, graph_columns: int = 0
    ) -> None:
        super().__init__()
        self.reductions, self.sum_divisor = POOLED[config.pooling], config.sum_divisor
        self.mlp = Mlp(channels, task.outputs, config, len(self.reductions) * channels)
        self.descriptors: GraphDescriptors | None = None
        if graph_columns:
            self.descriptors = GraphDescriptors(graph_columns, task.outputs)
            self.choice = Dropout(0.5)
            number_dropouts(self)

    def forward(self, x: Nodes, topology: Topology) -> Float[Tensor, "graphs outputs"]:
        batch, ptr, seed = topology.batch, topology.starts(), topology.dropout_seed
        size = ptr.diff().clamp_min(1)[:, None]  # [graphs, 1]; one without nodes gets zeros
        pooled = [
            max_segments(x, batch, ptr)
            if name == "max"
            else sum_segments(x, batch, ptr) / (self.sum_divisor if name == "sum" else size)
            for name in self.reductions
        ]
        out = self.mlp(torch.cat(pooled, dim=1) if len(pooled) > 1 else pooled[0], seed)
        if self.descriptors is None:
            return out
        graph_attr = topology.columns[DESCRIPTORS]
        share = self.choice(torch.ones_like(out[:, :1]), seed) / 2  # a half; 0 or 1 in training
        return share * out + (1 - share) * self.descriptors(graph_attr, seed)


class NodeHead(nn.Module):
    """Predict every node.

    For links the output is an embedding of each node, since ranking metrics need the scores of all
    pairs; `pair_scores` computes them.
    """

    def __init__(self, channels: int, task: Task, config: HeadConfig) -> None:
        super().__init__()
        outputs = channels if task.level == "link" else task.outputs
        self.mlp = Mlp(channels, outputs, config)

    def forward(self, x: Nodes, topology: Topology) -> Float[Tensor, "nodes outputs"]:
        return self.mlp(x, topology.dropout_seed)


def pair_scores(embeddings: Nodes, pairs: Int[Tensor, "2 pairs"]) -> Float[Tensor, " pairs"]:
    """Inner product of the two embeddings of each pair."""
    return torch.linalg.vecdot(embeddings[pairs[0]], embeddings[pairs[1]])

"""Encoders: from the features of a batch to node and edge embeddings."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize, relu
from torch_geometric.data import Data

from graphmamba.data.batch import column
from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, Features
from graphmamba.errors import UserError
from graphmamba.nn.base import Nodes, one_per_edge
from graphmamba.nn.config import (
    EncoderConfig,
    LaplacianConfig,
    NormalizeInputsName,
    RandomWalkConfig,
)
from graphmamba.nn.norm import BatchNorm, Dropout, NoNorm
from graphmamba.ops.l2_normalize import l2_normalize
from graphmamba.ops.random import draw_signs


@dataclass(frozen=True)
class Encoded:
    """Input of the first layer."""

    x: Nodes
    e: Float[Tensor, "edge_rows channels"] | None
    """Edge embeddings, a row for each edge or one for all; None if no layer reads them."""
    gate: Nodes | None
    """Positional encoding for the gates of GatedGCN, or None."""


class GraphEncoder(nn.Module):
    """Node encoder and edge encoder, with optional norms and MLP.

    Args:
        features: Features of the data.
        channels: Width of the model, positional encodings included.
        config: Options of the encoders.
    """

    def __init__(self, features: Features, channels: int, config: EncoderConfig) -> None:
        super().__init__()
        own_channels = channels - config.position_channels
        if own_channels < 1:
            raise UserError(
                f"channels must be more than the {config.position_channels} that the positional "
                f"encodings take, got {channels}"
            )
        parts: list[nn.Module] = [RawColumns("nodes", features, own_channels, config)]
        if config.laplacian:
            parts.append(LaplacianEncoder(config.laplacian))
        if config.random_walk:
            parts.append(RandomWalkEncoder(config.random_walk))
        # An encoder called with the batch, then layers called with rows and the count of real ones.
        self.nodes = nn.Sequential(
            Concat(*parts),
            BatchNorm(channels) if config.has_node_norm else NoNorm(),
            *[PreLayer(channels) for _ in range(config.pre_layers)],
        )
        self.edges: nn.Sequential | None = None
        if config.has_edges:
            self.edges = nn.Sequential(
                DummyEdges(channels)
                if features.edges == "none"
                else RawColumns("edges", features, channels, config),
                BatchNorm(channels) if config.has_edge_norm else NoNorm(),
            )
        self.gate = (
            GateEncoder(config.stable_gate_eigenvectors, channels)
            if config.stable_gate_eigenvectors
            else None
        )

    @torch.no_grad()
    def measure_inputs(self, graphs: Data) -> None:
        """Measure the statistics for `normalize_inputs` on these graphs."""
        for part in self.modules():
            if isinstance(part, RawColumns) and isinstance(part.network, NumberEncoder):
                scaling = part.network.standardize
                if isinstance(scaling, Standardize | ScaleWords):
                    scaling.measure(part.columns(graphs))

    def forward(self, graphs: Data) -> Encoded:
        features, *layers = self.nodes
        x = features(graphs)
        for layer in layers:
            x = layer(x, column(graphs, "num_real_nodes"))
        e = None
        if self.edges is not None:
            e = self.edges[0](graphs)
            if isinstance(self.edges[1], BatchNorm):
                e = one_per_edge(e, graphs.edge_index.shape[1])
                e = self.edges[1](e, column(graphs, "num_real_edges"))
        return Encoded(x, e, None if self.gate is None else self.gate(graphs))


class Concat(nn.Module):
    """Concatenates node features and positional encodings."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, graphs: Data) -> Nodes:
        return torch.cat([part(graphs) for part in self.parts], dim=-1)


class RawColumns(nn.Module):
    """Encoder of the features of nodes or edges, categories or floats."""

    def __init__(
        self,
        of: Literal["nodes", "edges"],
        features: Features,
        channels: int,
        config: EncoderConfig,
    ) -> None:
        super().__init__()
        self.of, self.has_degree = of, config.has_degree and of == "nodes"
        self.network: nn.Module
        if of == "nodes" and features.nodes == "atoms":
            self.network = CategoryEncoder(ATOM_VOCABULARY, channels)
        elif of == "nodes":
            columns = features.node_columns + self.has_degree
            scaling = scaling_of(config.normalize_inputs, columns, NODE_STATISTICS)
            self.network = NumberEncoder(columns, channels, scaling, config.input_dropout)
        elif features.edges == "bonds":
            self.network = CategoryEncoder(BOND_VOCABULARY, channels)
        else:
            scaling = scaling_of(config.normalize_inputs, features.edge_columns, EDGE_STATISTICS)
            self.network = NumberEncoder(features.edge_columns, channels, scaling)

    def forward(self, graphs: Data) -> Float[Tensor, "rows channels"]:
        return self.network(self.columns(graphs))

    def columns(self, graphs: Data) -> Float[Tensor, "rows columns"] | Int[Tensor, "rows columns"]:
        """Return the features, optionally with the logarithm of the degree."""
        if self.of == "edges":
            return graphs.edge_attr
        if not self.has_degree:
            return graphs.x
        target = graphs.edge_index[1]
        degree = graphs.x.new_zeros(graphs.x.shape[0]).index_add(
            0, target, graphs.x.new_ones(target.shape[0])
        )
        return torch.cat([graphs.x, degree.log1p()[:, None]], dim=1)


class DummyEdges(nn.Module):
    """One learned vector for all edges, for data without edge features; one row stands for all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, channels))

    def forward(self, graphs: Data) -> Float[Tensor, "1 channels"]:  # noqa: ARG002
        return self.weight


class PreLayer(nn.Module):
    """A layer before the graph layers: linear, BatchNorm, ReLU, L2 normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, channels, bias=False)
        self.norm = BatchNorm(channels)

    def forward(self, x: Nodes, count: Int[Tensor, ""] | None = None) -> Nodes:
        return l2_normalize(relu(self.norm(self.linear(x), count)))


class CategoryEncoder(nn.Module):
    r"""Sum of one learned vector per column.

    .. math:: y = \sum_c W_c[i_c]

    The tables of all columns are rows of one matrix, each initialised by itself (Xavier uniform).
    The sum is computed as a product with a multi-hot row, whose gradient is deterministic, unlike
    that of a lookup.

    Args:
        vocabulary: Number of values of each column.
        channels: Width of the embedding.
    """

    offsets: Int[Tensor, " columns"]

    def __init__(self, vocabulary: tuple[int, ...], channels: int) -> None:
        super().__init__()
        bounds = list(accumulate(vocabulary, initial=0))
        self.weight = nn.Parameter(torch.empty(bounds[-1], channels))
        self.register_buffer("offsets", torch.tensor(bounds[:-1]), persistent=False)
        for start, end in pairwise(bounds):
            nn.init.xavier_uniform_(self.weight.data[start:end])

    def forward(self, columns: Int[Tensor, "rows columns"]) -> Float[Tensor, "rows channels"]:
        entries = self.weight.new_zeros(columns.shape[0], self.weight.shape[0])
        return entries.scatter(1, columns + self.offsets, 1.0) @ self.weight


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each column over a training set."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


class NumberEncoder(nn.Module):
    """Linear layer on raw columns.

    Args:
        columns: Raw columns.
        channels: Width of the result.
        scaling: Scales the features first; None leaves them raw, as in the published models.
        dropout: Dropout rate on the scaled features.
    """

    def __init__(
        self,
        columns: int,
        channels: int,
        scaling: "Standardize | ScaleWords | None" = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.standardize = nn.Identity() if scaling is None else scaling
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(columns, channels)

    def forward(self, numbers: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows channels"]:
        return self.linear(self.dropout(self.standardize(numbers)))


LARGEST_INPUT = 10.0
"""Inputs standardised by the training graphs are clamped at so many standard deviations."""


class Standardize(nn.Module):
    """Subtract the mean and divide by the standard deviation; both are buffers.

    Args:
        statistics: Mean and deviation of each column.
        largest: The result is clamped to [-largest, largest]; None for no limit.
    """

    mean: Float[Tensor, " columns"]
    deviation: Float[Tensor, " columns"]

    def __init__(self, statistics: Statistics, largest: float | None = None) -> None:
        super().__init__()
        self.largest = largest
        self.register_buffer("mean", Tensor(statistics.mean))
        self.register_buffer("deviation", Tensor(statistics.deviation))

    def measure(self, numbers: Float[Tensor, "rows columns"]) -> None:
        """Measure mean and standard deviation of these rows; 1 for constant columns."""
        if not len(numbers):
            return
        deviation, mean = torch.std_mean(numbers.double(), dim=0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(deviation.masked_fill(deviation <= 1e-6 * mean.abs(), 1.0))

    def forward(self, numbers: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        scaled = (numbers - self.mean) / self.deviation
        return scaled if self.largest is None else scaled.clamp(-self.largest, self.largest)


class ScaleWords(nn.Module):
    """Divide each bag of words by its sum, and all by their root mean square in training.

    Without the second step the entries would be small compared with the bias of the encoder.
    """

    scale: Float[Tensor, ""]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def measure(self, numbers: Float[Tensor, "rows columns"]) -> None:
        """Measure the root mean square of these rows."""
        scale = normalize(numbers, p=1.0, dim=1).double().square().mean().sqrt()
        self.scale.copy_(scale if scale > 0 else torch.ones(()))

    def forward(self, numbers: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        """Scale the rows; one without words stays 0."""
        return normalize(numbers, p=1.0, dim=1) / self.scale


def scaling_of(
    name: NormalizeInputsName, columns: int, known: Mapping[NormalizeInputsName, Statistics]
) -> Standardize | ScaleWords | None:
    """Make the scaling of features; `measure` of some has to be called on the training graphs."""
    if name == "train" or (name == "bag_of_words" and known is EDGE_STATISTICS):
        untold = Statistics((0.0,) * columns, (1.0,) * columns)
        return Standardize(untold, LARGEST_INPUT)
    if name == "bag_of_words":
        return ScaleWords()
    return Standardize(known[name]) if name in known else None


class RandomWalkEncoder(nn.Module):
    """RWSE: a linear layer or an MLP on the return probabilities after 1, 2, ... steps.

    Reads `random_walk`. See https://arxiv.org/abs/2110.07875.
    """

    def __init__(self, config: RandomWalkConfig) -> None:
        super().__init__()
        self.walk_length = config.walk_length
        self.channels = config.channels
        self.norm = BatchNorm(config.walk_length) if config.has_norm else NoNorm()
        self.network = (
            nn.Linear(config.walk_length, config.channels)
            if config.form == "linear"
            else relu_mlp(config.walk_length, config.channels, config.layers)
        )

    def forward(self, graphs: Data) -> Nodes:
        returns = graphs.random_walk[:, : self.walk_length]
        return self.network(self.norm(returns, column(graphs, "num_real_nodes")))


class LaplacianEncoder(nn.Module):
    """LapPE: a set network over the pairs (eigenvector entry, eigenvalue) of each node.

    Eigenvectors have no defined sign: in training, each is multiplied by a random one, shared by
    the whole batch. Eigenvectors that a small graph lacks are NaN and do not count.

    Reads `laplacian_vectors` and `laplacian_values`. See https://arxiv.org/abs/2205.12454.
    """

    flips: Int[Tensor, ""]
    places: Int[Tensor, " eigenvectors"]

    def __init__(self, config: LaplacianConfig) -> None:
        super().__init__()
        self.num_eigenvectors = config.num_eigenvectors
        self.channels = config.channels
        self.set_network = FORMS[config.form](config)
        # The signs are a function of this number alone, which is counted up in place: they are
        # the same on every device, survive a checkpoint, and can be replayed in a CUDA graph.
        self.register_buffer("flips", torch.randint(2**31, ()))
        self.register_buffer("places", torch.arange(config.num_eigenvectors), persistent=False)

    def forward(self, graphs: Data) -> Nodes:
        vectors = graphs.laplacian_vectors[:, : self.num_eigenvectors]
        values = graphs.laplacian_values[:, : self.num_eigenvectors]
        is_missing = torch.isnan(vectors)
        if self.training:  # one random sign for each frequency, new at each call
            self.flips.add_(1)
            vectors = vectors * draw_signs(self.flips, self.places)
        pairs = torch.stack([vectors, values], dim=-1)
        pairs = torch.where(is_missing[:, :, None], 0.0, pairs)  # [nodes, num_eigenvectors, 2]
        return self.set_network(pairs, is_missing)


class DeepSet(nn.Module):
    """The same small MLP on every pair, then a sum."""

    def __init__(self, config: LaplacianConfig) -> None:
        super().__init__()
        self.mlp = relu_mlp(2, config.channels, config.layers)

    def forward(
        self,
        pairs: Float[Tensor, "nodes eigenvectors 2"],
        is_missing: Bool[Tensor, "nodes eigenvectors"],
    ) -> Nodes:
        return torch.where(is_missing[:, :, None], 0.0, self.mlp(pairs)).sum(dim=1)


class SetTransformer(nn.Module):
    """Self-attention among the eigenvectors of a node, then a sum."""

    def __init__(self, config: LaplacianConfig) -> None:
        super().__init__()
        self.lift = nn.Linear(2, config.channels)
        layer = nn.TransformerEncoderLayer(config.channels, config.heads, batch_first=True)
        self.attend = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)

    def forward(
        self,
        pairs: Float[Tensor, "nodes eigenvectors 2"],
        is_missing: Bool[Tensor, "nodes eigenvectors"],
    ) -> Nodes:
        # a node without any frequency would have a softmax over nothing
        is_hidden = is_missing & ~is_missing.all(dim=1, keepdim=True)
        rows = self.attend(self.lift(pairs), src_key_padding_mask=is_hidden)
        return rows.masked_fill(is_missing[:, :, None], 0.0).sum(dim=1)


FORMS = {"deepset": DeepSet, "transformer": SetTransformer}


class GateEncoder(nn.Module):
    """Equivariant-stable LapPE: positional encodings that only modulate the gates of GatedGCN.

    No signs are flipped: the gates read distances between positions. Reads `laplacian_vectors`.
    See https://arxiv.org/abs/2203.00199.

    Args:
        num_eigenvectors: Number of eigenvectors.
        channels: Width of the encoding.
    """

    def __init__(self, num_eigenvectors: int, channels: int) -> None:
        super().__init__()
        self.num_eigenvectors = num_eigenvectors
        self.linear = nn.Linear(num_eigenvectors, channels)

    def forward(self, graphs: Data) -> Nodes:
        vectors = graphs.laplacian_vectors[:, : self.num_eigenvectors]
        return self.linear(vectors.masked_fill(torch.isnan(vectors), 0.0))


def relu_mlp(columns: int, channels: int, layers: int) -> nn.Sequential:
    """Stack linear layers, each with a ReLU; hidden ones are twice as wide as the result."""
    widths = [columns, *[2 * channels] * (layers - 1), channels]
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts)


# Columns of a node: mean, deviation, maximum, minimum of R, G, B, then row and column of the
# centre in pixels. Columns of an edge: Sobel value on the shared boundary, pixels in it. Numbers
# from "Where did the gap go?", https://arxiv.org/abs/2309.00367.
# fmt: off
NODE_STATISTICS: dict[NormalizeInputsName, Statistics] = {
    "pascalvoc-sp": Statistics(
        mean=(
            0.45824501, 0.43857411, 0.40561178, 0.067938097, 0.065604292, 0.065742709,
            0.65212941, 0.62894762, 0.60173863, 0.27769071, 0.26425251, 0.23729359,
            193.44997, 234.72206,
        ),
        deviation=(
            0.25952947, 0.25716761, 0.27130592, 0.054822665, 0.054429270, 0.054474957,
            0.26238337, 0.26600540, 0.27750680, 0.25197381, 0.24986187, 0.26069802,
            117.68297, 140.07195,
        ),
    ),
    "coco-sp": Statistics(
        mean=(
            0.46977347, 0.44679317, 0.40790915, 0.070808627, 0.068686441, 0.068498217,
            0.67777938, 0.65244222, 0.62096798, 0.27554795, 0.25910738, 0.22901227,
            242.61935, 289.85367,
        ),
        deviation=(
            0.26218116, 0.25831082, 0.27416739, 0.057440419, 0.056832556, 0.057100497,
            0.25929087, 0.26201612, 0.27675411, 0.25456995, 0.25140920, 0.26182330,
            151.52475, 176.30779,
        ),
    ),
}
# fmt: on
EDGE_STATISTICS: dict[NormalizeInputsName, Statistics] = {
    "pascalvoc-sp": Statistics(mean=(0.07640745, 33.73478), deviation=(0.0868775, 20.945076)),
    "coco-sp": Statistics(mean=(0.07848548, 43.68736), deviation=(0.08902349, 28.473562)),
}

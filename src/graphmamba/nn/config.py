"""Which encoders and layers a model has, as data."""

from dataclasses import dataclass, field
from typing import Literal

from graphmamba.checks import check_divides, check_fraction, check_least, check_types
from graphmamba.nn.graph_mamba import InputNorm
from graphmamba.nn.mamba import MambaConfig
from graphmamba.nn.norm import NormName
from graphmamba.ops.activation import Activation
from graphmamba.ordering.policy import OrderPolicy

LocalModelName = Literal["gatedgcn", "gcn", "gcne", "gine", "gin", "sage", "none"]
LayerName = Literal["gps", "residual"]
GlobalModelName = Literal["mamba", "transformer", "performer", "bigbird", "exphormer", "none"]
LaplacianForm = Literal["deepset", "transformer"]
RandomWalkForm = Literal["linear", "mlp"]
NormalizeInputsName = Literal["none", "train", "bag_of_words", "pascalvoc-sp", "coco-sp"]
MEASURED: tuple[NormalizeInputsName, ...] = ("train", "bag_of_words")
"""What follows the training graphs, and has to be measured before the first step."""


@dataclass(frozen=True)
class AttentionConfig:
    """What the baselines that attend have in common."""

    heads: int = 4
    """Attention heads."""
    dropout: float = 0.5
    """Rate on the attention weights, or on the output of Performer; BigBird and Exphormer have
    none."""
    head_width: int | None = None
    """Width of a head of Performer; null divides the channels among the heads. The published
    models have 64 whatever their width, which makes them far larger than their baselines."""
    expander_degree: int = 0
    """Permutations of the expander graph that Exphormer attends along; 0 for none."""
    virtual_nodes: int = 0
    """Nodes that Exphormer adds to each graph, joined with all others."""

    def __post_init__(self) -> None:
        check_types(self, "attention.")
        check_least("attention.heads", self.heads, 1)
        check_fraction("attention.dropout", self.dropout)
        check_least("attention.expander_degree", self.expander_degree, 0)
        check_least("attention.virtual_nodes", self.virtual_nodes, 0)


@dataclass(frozen=True)
class ResidualConfig:
    """What surrounds local model and global model of a plain layer."""

    activation: Activation = "relu"
    """After local model and global model; GatedGCN alone has its own."""
    norm: NormName = "none"
    """Before that activation, one for each of both."""
    has_residual: bool = True
    """Whether a layer adds its input."""
    l2_normalize: bool = False
    """Whether rows are scaled to length 1 after each layer."""
    has_bias: bool = True
    """Whether GCN adds a bias."""

    def __post_init__(self) -> None:
        check_types(self, "residual.")


@dataclass(frozen=True)
class ModelConfig:
    """The layers between encoder and head; the defaults are Graph-Mamba's."""

    channels: int = 96
    """Width of all rows."""
    layers: int = 4
    """Number of layers."""
    dropout: float = 0.0
    """Rate of the dropouts in each layer."""
    local_model: LocalModelName = "gatedgcn"
    """Message passing along the edges."""
    global_model: GlobalModelName = "mamba"
    """Exchange among all nodes of a graph; `none` makes a stack of the local model alone."""
    layer: LayerName = "gps"
    """`gps`: residuals, norms and a feed-forward network (GraphGPS); `residual`: what the keys of
    `residual` say, around any local model but GatedGCN, which has a residual of its own. Without a
    global model all layers are `residual`."""
    norm: NormName = "batch"
    """Norms of a layer of GPS."""
    activation: Activation = "relu"
    """Inside the local model and the feed-forward network."""
    ordering: OrderPolicy = field(default_factory=OrderPolicy)
    """How nodes are ordered, where `global_model` is `mamba`."""
    mamba: MambaConfig = field(default_factory=MambaConfig)
    """Sizes of the Mamba block, where `global_model` is `mamba`."""
    input_norm: InputNorm = "none"
    """Before the Mamba block: `none` as in the published numbers, `layer` as in the paper."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    """Where `global_model` attends."""
    residual: ResidualConfig = field(default_factory=ResidualConfig)
    """Where `global_model` is `none` or `layer` is `plain`."""

    def __post_init__(self) -> None:
        check_types(self, "model.")
        check_least("model.channels", self.channels, 1)
        check_least("model.layers", self.layers, 1)
        check_fraction("model.dropout", self.dropout)


@dataclass(frozen=True)
class LaplacianConfig:
    """Positions from the Laplacian's spectrum (LapPE)."""

    channels: int = 16
    """Width of the encoding."""
    num_eigenvectors: int = 10
    """Eigenvectors read, from the smallest eigenvalue upwards."""
    form: LaplacianForm = "deepset"
    """What turns the pairs (entry, eigenvalue) into one vector."""
    layers: int = 2
    """Layers of that network."""
    heads: int = 4
    """Attention heads, where `form` is `transformer`."""

    def __post_init__(self) -> None:
        check_types(self, "laplacian.")
        for name in ("channels", "num_eigenvectors", "layers"):
            check_least(f"laplacian.{name}", getattr(self, name), 1)
        if self.form == "transformer":
            check_divides("laplacian.heads", self.heads, "channels", self.channels)


@dataclass(frozen=True)
class RandomWalkConfig:
    """Structure from random walks that return to their start (RWSE)."""

    channels: int = 28
    """Width of the encoding."""
    walk_length: int = 20
    """Steps of the longest walk."""
    form: RandomWalkForm = "linear"
    """What turns the return probabilities into one vector."""
    layers: int = 2
    """Layers, where `form` is `mlp`."""
    has_norm: bool = True
    """Whether a BatchNorm comes before the first layer."""

    def __post_init__(self) -> None:
        check_types(self, "random_walk.")
        for name in ("channels", "walk_length", "layers"):
            check_least(f"random_walk.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class EncoderConfig:
    """From raw columns to node embeddings and edge embeddings of the model's width."""

    laplacian: LaplacianConfig | None = None
    """Laplacian positions, appended to the node features; none if null."""
    random_walk: RandomWalkConfig | None = None
    """Random-walk structure, appended to the node features; none if null."""
    stable_gate_eigenvectors: int = 0
    """Eigenvectors that modulate the gates of GatedGCN (equivariant-stable LapPE); 0 for none."""
    normalize_inputs: NormalizeInputsName = "none"
    """`train`: raw numbers of nodes and edges are standardised by the training graphs and clamped;
    `bag_of_words`: rows of nodes are scaled to sum 1, then divided by their root mean square; or
    the data set whose mean and deviation standardise them, which must be its columns, or such as
    mean the same."""
    has_degree: bool = False
    """Whether the logarithm of a node's degree is one more of its raw numbers."""
    dropout: float = 0.0
    """Rate on the raw numbers of the nodes."""
    has_edges: bool = True
    """Whether edges get rows of their own: GCN reads none."""
    has_node_norm: bool = False
    """Whether a BatchNorm follows the node encoder."""
    has_edge_norm: bool = False
    """Whether a BatchNorm follows the edge encoder."""
    pre_layers: int = 0
    """Dense layers on the node embeddings before the first graph layer."""

    def __post_init__(self) -> None:
        check_types(self)
        check_least("stable_gate_eigenvectors", self.stable_gate_eigenvectors, 0)
        check_least("pre_layers", self.pre_layers, 0)
        check_fraction("encoder.dropout", self.dropout)

    @property
    def position_channels(self) -> int:
        """Channels that the positional encodings take of the model's width."""
        return sum(part.channels for part in (self.laplacian, self.random_walk) if part)

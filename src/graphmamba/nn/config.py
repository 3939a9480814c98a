"""Which layers a model has, as data."""

from dataclasses import dataclass, field
from typing import Literal

from graphmamba.checks import check_fraction, check_least, check_types
from graphmamba.nn.graph_mamba import InputNorm
from graphmamba.nn.mamba import MambaOptions
from graphmamba.nn.norm import NormName
from graphmamba.ops.activation import Activation
from graphmamba.ordering.policy import OrderPolicy

LocalName = Literal["gatedgcn", "gcn", "gcne", "gine", "gin", "none"]
JoinName = Literal["gps", "plain"]
MixerName = Literal["mamba", "transformer", "performer", "bigbird", "exphormer", "none"]


@dataclass(frozen=True)
class AttentionConfig:
    """What the rivals that attend have in common."""

    heads: int = 4
    """Attention heads."""
    dropout: float = 0.5
    """Rate on the attention weights, or on the output of Performer; BigBird and Exphormer have
    none."""
    head_width: int | None = None
    """Width of a head of Performer; null divides the channels among the heads. The published
    models have 64 whatever their width, which makes them far larger than their rivals."""
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
class PlainConfig:
    """What surrounds local model and mixer of a plain layer."""

    activation: Activation = "relu"
    """After local model and mixer; GatedGCN alone has its own."""
    norm: NormName = "none"
    """Before that activation, one for each of both."""
    has_residual: bool = True
    """Whether a layer adds its input."""
    has_unit_rows: bool = False
    """Whether rows are scaled to length 1 after each layer."""
    has_bias: bool = True
    """Whether GCN adds a bias."""

    def __post_init__(self) -> None:
        check_types(self, "plain.")


@dataclass(frozen=True)
class StackConfig:
    """The layers between encoder and head; the defaults are Graph-Mamba's."""

    channels: int = 96
    """Width of all rows."""
    layers: int = 4
    """Number of layers."""
    dropout: float = 0.0
    """Rate of the dropouts in each layer."""
    local: LocalName = "gatedgcn"
    """Message passing along the edges."""
    mixer: MixerName = "mamba"
    """Exchange among all nodes of a graph; `none` makes a stack of the local model alone."""
    join: JoinName = "gps"
    """What local model and mixer are joined by: `gps` adds residuals, norms and a feed-forward
    network, `plain` what the entries of `plain` say, around any local model but GatedGCN, which
    has a residual of its own. Without a mixer all layers are plain."""
    norm: NormName = "batch"
    """Norms of a layer of GPS."""
    activation: Activation = "relu"
    """Inside the local model and the feed-forward network."""
    order: OrderPolicy = field(default_factory=OrderPolicy)
    """How nodes are lined up, where `mixer` is `mamba`."""
    mamba: MambaOptions = field(default_factory=MambaOptions)
    """Sizes of the Mamba block, where `mixer` is `mamba`."""
    input_norm: InputNorm = "none"
    """Before the Mamba block: `none` as in the published numbers, `layer` as in the paper."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    """Where `mixer` attends."""
    plain: PlainConfig = field(default_factory=PlainConfig)
    """Where `mixer` is `none` or `join` is `plain`."""

    def __post_init__(self) -> None:
        check_types(self, "model.")
        check_least("model.channels", self.channels, 1)
        check_least("model.layers", self.layers, 1)
        check_fraction("model.dropout", self.dropout)

"""Configuration of encoders and layers, as dataclasses."""

from dataclasses import dataclass, field
from typing import Literal

from graphmamba.checks import check_divides, check_fraction, check_least, check_types
from graphmamba.nn.graph_mamba import InputNorm, MambaConfig
from graphmamba.nn.norm import NormName
from graphmamba.nn.spectral import SpectralConfig
from graphmamba.ops.activation import Activation
from graphmamba.ordering.policy import OrderPolicy

LocalModelName = Literal["gatedgcn", "gcn", "gcne", "gine", "gin", "sage", "none"]
LayerName = Literal["gps", "residual"]
GlobalModelName = Literal["mamba", "transformer", "performer", "bigbird", "exphormer", "none"]
LaplacianForm = Literal["deepset", "transformer"]
RandomWalkForm = Literal["linear", "mlp"]
NormalizeInputsName = Literal["none", "train", "bag_of_words", "pascalvoc-sp", "coco-sp"]
MEASURED: tuple[NormalizeInputsName, ...] = ("train", "bag_of_words")
"""Input scalings that are measured on the training graphs before the first step."""


@dataclass(frozen=True)
class AttentionConfig:
    """Options shared by the attention baselines."""

    heads: int = 4
    """Number of attention heads."""
    dropout: float = 0.5
    """Dropout on the attention weights (Transformer) or on the attention output (Performer);
    BigBird and Exphormer use none."""
    head_width: int | None = None
    """Channels per head of Performer; null divides `model.channels` among the heads. The published
    Performer models use 64, which makes them far larger than the other baselines."""
    expander_degree: int = 0
    """Random permutations that form the expander graph of Exphormer; 0 for no expander edges."""
    virtual_nodes: int = 0
    """Virtual nodes per graph in Exphormer, each connected to all nodes; 0 for none."""

    def __post_init__(self) -> None:
        check_types(self, "attention.")
        check_least("attention.heads", self.heads, 1)
        check_fraction("attention.dropout", self.dropout)
        check_least("attention.expander_degree", self.expander_degree, 0)
        check_least("attention.virtual_nodes", self.virtual_nodes, 0)


@dataclass(frozen=True)
class ResidualConfig:
    """Options of a plain layer (`layer: residual`)."""

    activation: Activation = "relu"
    """Activation after the local and after the global model; GatedGCN has its own."""
    norm: NormName = "none"
    """Norm before that activation."""
    has_residual: bool = True
    """Add the input of a layer to its output."""
    l2_normalize: bool = False
    """L2-normalise node embeddings after each layer."""
    has_bias: bool = True
    """Add a bias in GCN."""
    has_zero_gate: bool = False
    """Multiply the output of the global model by a learned weight per channel that starts at 0
    (ReZero)."""

    def __post_init__(self) -> None:
        check_types(self, "residual.")


@dataclass(frozen=True)
class ModelConfig:
    """The layers between encoder and head; the defaults are Graph-Mamba's."""

    channels: int = 96
    """Width of node and edge embeddings."""
    layers: int = 4
    """Number of layers."""
    dropout: float = 0.0
    """Dropout rate in the layers."""
    local_model: LocalModelName = "gatedgcn"
    """Message passing along edges (MPNN): GatedGCN, GCN, GCN with edge features (`gcne`), GINE,
    GIN, GraphSAGE or none."""
    global_model: GlobalModelName = "mamba"
    """Model over all nodes of a graph: Mamba, or the attention of a baseline; `none` leaves message
    passing alone."""
    layer: LayerName = "gps"
    """`gps`: GPS layer (local and global model in parallel, with residuals and norms, then an MLP);
    `residual`: plain layer, set by `model.residual.*`, for all local models but GatedGCN. Without a
    global model every layer is `residual`."""
    norm: NormName = "batch"
    """Norm in GPS layers: BatchNorm, LayerNorm of each node, LayerNorm over all nodes of a graph,
    or none."""
    activation: Activation = "relu"
    """Activation of the local model and of the MLP."""
    ordering: OrderPolicy = field(default_factory=OrderPolicy)
    """How nodes are ordered, if `global_model` is `mamba`."""
    mamba: MambaConfig = field(default_factory=MambaConfig)
    """Sizes of the Mamba block, if `global_model` is `mamba`."""
    input_norm: InputNorm = "none"
    """Norm before the Mamba block: `none` as in the published models, `layer` (LayerNorm) as in the
    paper's text."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    """Attention, if `global_model` is a baseline."""
    residual: ResidualConfig = field(default_factory=ResidualConfig)
    """Plain layers: if `layer` is `residual` or `global_model` is `none`."""
    global_dropout: float | None = None
    """Dropout after the global model of a GPS layer; null takes `dropout`."""
    centered_sums: bool = False
    """Aggregate neighbours by sums centred by degree (GatedGCN, GCN+, GINE, GIN)."""
    spectral: SpectralConfig | None = None
    """Spectral filter of the Laplacian beside each layer; none if null."""
    virtual_node: bool = False
    """Add a virtual node per graph, updated after each layer."""
    jumping_knowledge: bool = False
    """Feed the mean over all layers to the head, not the last layer alone
    (https://arxiv.org/abs/1806.03536)."""

    def __post_init__(self) -> None:
        check_types(self, "model.")
        check_least("model.channels", self.channels, 1)
        check_least("model.layers", self.layers, 1)
        check_fraction("model.dropout", self.dropout)
        if self.global_dropout is not None:
            check_fraction("model.global_dropout", self.global_dropout)


@dataclass(frozen=True)
class LaplacianConfig:
    """Laplacian positional encoding (LapPE)."""

    channels: int = 16
    """Width of the encoding."""
    num_eigenvectors: int = 10
    """Laplacian eigenvectors used, from the smallest eigenvalue upwards."""
    form: LaplacianForm = "deepset"
    """Network over the (eigenvector entry, eigenvalue) pairs of a node."""
    layers: int = 2
    """Layers of that network."""
    heads: int = 4
    """Attention heads, if `form` is `transformer`."""

    def __post_init__(self) -> None:
        check_types(self, "laplacian.")
        for name in ("channels", "num_eigenvectors", "layers"):
            check_least(f"laplacian.{name}", getattr(self, name), 1)
        if self.form == "transformer":
            check_divides("laplacian.heads", self.heads, "channels", self.channels)


@dataclass(frozen=True)
class RandomWalkConfig:
    """Random-walk structural encoding (RWSE)."""

    channels: int = 28
    """Width of the encoding."""
    walk_length: int = 20
    """Length of the longest random walk."""
    form: RandomWalkForm = "linear"
    """Network over the return probabilities."""
    layers: int = 2
    """Layers, if `form` is `mlp`."""
    has_norm: bool = True
    """BatchNorm before the first layer."""

    def __post_init__(self) -> None:
        check_types(self, "random_walk.")
        for name in ("channels", "walk_length", "layers"):
            check_least(f"random_walk.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class EncoderConfig:
    """Encoders of node and edge features, with positional encodings."""

    laplacian: LaplacianConfig | None = None
    """Laplacian positional encoding (LapPE), concatenated to the node embeddings; null for none."""
    random_walk: RandomWalkConfig | None = None
    """Random-walk structural encoding (RWSE), concatenated to the node embeddings; null for
    none."""
    stable_gate_eigenvectors: int = 0
    """Laplacian eigenvectors that modulate the gates of GatedGCN (equivariant-stable LapPE); 0 for
    none."""
    normalize_inputs: NormalizeInputsName = "none"
    """Standardisation of raw node and edge features: `train` by the training graphs, clamped at
    +-10; `bag_of_words` scales rows to sum 1 and divides by their root mean square; a data set's
    name uses its published mean and standard deviation, for data with its columns."""
    has_degree: bool = False
    """Append the logarithm of the node degree to the raw node features."""
    input_dropout: float = 0.0
    """Dropout on raw node features."""
    has_edges: bool = True
    """Compute edge embeddings; GCN does not need them."""
    has_node_norm: bool = False
    """BatchNorm after the node encoder."""
    has_edge_norm: bool = False
    """BatchNorm after the edge encoder."""
    pre_layers: int = 0
    """MLP layers on node embeddings before the first graph layer."""
    reverse_edges: bool = False
    """Add the reverse of each edge, marked by a learned embedding: for directed graphs."""

    def __post_init__(self) -> None:
        check_types(self)
        check_least("stable_gate_eigenvectors", self.stable_gate_eigenvectors, 0)
        check_least("pre_layers", self.pre_layers, 0)
        check_fraction("encoder.input_dropout", self.input_dropout)

    @property
    def position_channels(self) -> int:
        """Channels of the positional encodings, which are part of the width of the model."""
        return sum(part.channels for part in (self.laplacian, self.random_walk) if part)

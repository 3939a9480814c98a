"""Which encoders a model has, as data."""

from dataclasses import dataclass
from typing import Literal

from graphmamba.checks import check_divides, check_least, check_types

LaplacianForm = Literal["deepset", "transformer"]
RandomWalkForm = Literal["linear", "mlp"]
StandardizationName = Literal["none", "pascalvoc-sp", "coco-sp"]


@dataclass(frozen=True)
class LaplacianConfig:
    """Positions from the Laplacian's spectrum (LapPE)."""

    channels: int = 16
    """Width of the encoding."""
    frequencies: int = 10
    """Eigenvectors read, from the smallest eigenvalue upwards."""
    form: LaplacianForm = "deepset"
    """What turns the pairs (entry, eigenvalue) into one vector."""
    layers: int = 2
    """Layers of that network."""
    heads: int = 4
    """Attention heads, where `form` is `transformer`."""

    def __post_init__(self) -> None:
        check_types(self, "laplacian.")
        for name in ("channels", "frequencies", "layers"):
            check_least(f"laplacian.{name}", getattr(self, name), 1)
        if self.form == "transformer":
            check_divides("laplacian.heads", self.heads, "channels", self.channels)


@dataclass(frozen=True)
class RandomWalkConfig:
    """Structure from random walks that return to their start (RWSE)."""

    channels: int = 28
    """Width of the encoding."""
    walks: int = 20
    """Steps of the longest walk."""
    form: RandomWalkForm = "linear"
    """What turns the return probabilities into one vector."""
    layers: int = 2
    """Layers, where `form` is `mlp`."""
    has_norm: bool = True
    """Whether a BatchNorm comes before the first layer."""

    def __post_init__(self) -> None:
        check_types(self, "random_walk.")
        for name in ("channels", "walks", "layers"):
            check_least(f"random_walk.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class EncoderConfig:
    """From raw columns to node rows and edge rows of the model's width."""

    laplacian: LaplacianConfig | None = None
    """Laplacian positions, appended to the node features; none if null."""
    random_walk: RandomWalkConfig | None = None
    """Random-walk structure, appended to the node features; none if null."""
    gate_frequencies: int = 0
    """Eigenvectors that modulate the gates of GatedGCN (equivariant-stable LapPE); 0 for none."""
    standardization: StandardizationName = "none"
    """Data set whose mean and deviation standardise the raw numbers, which must be its columns, or
    such as mean the same."""
    has_edges: bool = True
    """Whether edges get rows of their own: GCN reads none."""
    has_node_norm: bool = False
    """Whether a BatchNorm follows the node encoder."""
    has_edge_norm: bool = False
    """Whether a BatchNorm follows the edge encoder."""
    pre_layers: int = 0
    """Dense layers on the node rows before the first graph layer."""

    def __post_init__(self) -> None:
        check_types(self)
        check_least("gate_frequencies", self.gate_frequencies, 0)
        check_least("pre_layers", self.pre_layers, 0)

    @property
    def position_channels(self) -> int:
        """Channels that the positional encodings take of the model's width."""
        return sum(part.channels for part in (self.laplacian, self.random_walk) if part)

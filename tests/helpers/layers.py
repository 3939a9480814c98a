"""One small layer of every kind, all called `layer(x, e, topology) -> (x, e)`."""

from collections.abc import Callable

from torch import nn

from graphmamba.nn import (
    GCN,
    GCNE,
    GINE,
    SAGE,
    Attention,
    BigBird,
    ExphormerStack,
    GatedGCN,
    GPSLayer,
    GraphMambaGlobal,
    GraphMambaLayer,
    Performer,
    ResidualLayer,
    SpectralConfig,
    SpectralFilter,
    SpectralLayer,
)
from graphmamba.ordering import OrderPolicy


def count(module: nn.Module) -> int:
    """Parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def spectral(channels: int) -> nn.Module:
    """A filter, beside GCN, that no longer starts at 0."""
    beside = SpectralFilter(channels, SpectralConfig(num_eigenvectors=5, gaussians=6))
    nn.init.normal_(beside.filter[1].weight)
    return SpectralLayer(ResidualLayer(channels, GCN(channels)), beside)


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "graph-mamba": GraphMambaLayer,
    "graph-mamba-bins": lambda d: GraphMambaLayer(d, OrderPolicy(bins=3)),
    "graph-mamba-both-ways": lambda d: GraphMambaLayer(d, OrderPolicy(direction="bidirectional")),
    "transformer": lambda d: GPSLayer(d, GatedGCN(d), Attention(d, 2)),
    "transformer-alone": lambda d: GPSLayer(d, None, Attention(d, 2), norm="graph"),
    "performer": lambda d: GPSLayer(d, GatedGCN(d), Performer(d, 2)),
    "performer-published": lambda d: GPSLayer(d, GatedGCN(d), Performer(d, 2, head_width=64)),
    "bigbird": lambda d: GPSLayer(d, GatedGCN(d), BigBird(d, 2)),
    "exphormer": lambda d: ExphormerStack(d, 2, 2, virtual_nodes=2),
    "exphormer-gate": lambda d: ExphormerStack(d, 1, 2, has_expander=False, has_stable_gate=True),
    "gatedgcn": GatedGCN,
    "gatedgcn-gate": lambda d: GatedGCN(d, has_stable_gate=True),
    "gatedgcn-centered": lambda d: GatedGCN(d, is_centered=True),
    "gcn": lambda d: ResidualLayer(
        d, GCN(d, has_bias=False), norm="batch", has_residual=False, l2_normalize=True
    ),
    "gcn-tuned": lambda d: ResidualLayer(d, GCN(d), activation="gelu", dropout=0.0),
    "gcn-plus": lambda d: ResidualLayer(
        d, GCNE(d), activation="gelu", norm="batch", has_residual=False
    ),
    "gcn-plus-mamba": lambda d: ResidualLayer(
        d,
        GCNE(d),
        activation="gelu",
        norm="batch",
        global_model=GraphMambaGlobal(d),
        has_residual=False,
    ),
    "gcn-plus-zero-gate": lambda d: ResidualLayer(
        d, GCNE(d, is_centered=True), global_model=GraphMambaGlobal(d), has_zero_gate=True
    ),
    "gine": lambda d: ResidualLayer(d, GINE(d)),
    "gine-tuned": lambda d: ResidualLayer(d, GINE(d, activation="gelu"), activation="none"),
    "gin": lambda d: ResidualLayer(d, GINE(d, reads_edges=False), norm="batch"),
    "sage": lambda d: ResidualLayer(d, SAGE(d)),
    "gps-gcn": lambda d: GPSLayer(d, GCN(d), None, norm="layer"),
    "gps-gcne": lambda d: GPSLayer(d, GCNE(d), Attention(d, 2)),
    "spectral": spectral,
    "gps-gine": lambda d: GPSLayer(d, GINE(d), Attention(d, 2), norm="none"),
}

"""Spectral filter: a learned filter on the Laplacian spectrum, beside any layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_least, check_types
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn.attention import DenseLayout
from graphmamba.nn.base import Edges, GlobalModel, Nodes
from graphmamba.nn.norm import Dropout, number_dropouts

FILTER_SHARE, GATE_SHARE = 0.2, 0.05
"""Width of the bottlenecks of filter and gate, relative to the channels."""


@dataclass(frozen=True)
class SpectralConfig:
    """Options of the spectral filter."""

    num_eigenvectors: int = 64
    """Eigenvectors, from the smallest eigenvalue upwards."""
    cutoff: float = 1.0
    """Eigenvalue of Deg - Adj at which the filter falls to 0."""
    gaussians: int = 60
    """Gaussian basis functions of the filter along the eigenvalues."""

    def __post_init__(self) -> None:
        check_types(self, "spectral.")
        check_least("spectral.num_eigenvectors", self.num_eigenvectors, 1)
        check_least("spectral.gaussians", self.gaussians, 2)
        if not 0 < self.cutoff < math.inf:
            raise UserError(f"spectral.cutoff must be positive and finite, got {self.cutoff!r}")


@dataclass(frozen=True)
class SpectralBasis:
    """Eigenvectors of the graphs of a batch in padded blocks, made once for all layers."""

    layout: DenseLayout
    vectors: Sequence[Float[Tensor, "_ _ eigenvectors"]]
    """[graphs, longest, eigenvectors]; zeros where a graph has fewer."""
    bumps: Sequence[Float[Tensor, "_ eigenvectors gaussians"]]
    """Gaussians of the eigenvalues, [graphs, eigenvectors, gaussians]."""
    window: Sequence[Float[Tensor, "_ eigenvectors 1"]]
    """1 up to half of the cutoff, then a cosine down to 0 (Tukey's window)."""

    @classmethod
    def of(cls, topology: Topology, config: SpectralConfig) -> "SpectralBasis":
        """Make the blocks of a batch, once for all layers."""
        return topology.cached((cls, config), lambda: cls._found(topology, config))

    @classmethod
    def _found(cls, topology: Topology, config: SpectralConfig) -> "SpectralBasis":
        vectors, values = map(topology.columns.get, ("laplacian_vectors", "laplacian_values"))
        if vectors is None or values is None:
            raise UserError(
                "topology must have laplacian_vectors and laplacian_values for a spectral filter, "
                "got None"
            )
        count = config.num_eigenvectors
        layout = DenseLayout.of(topology)
        spectra = torch.stack([vectors[:, :count], values[:, :count]], dim=1)
        # missing ones are beyond the cutoff
        is_missing = spectra.isnan()
        blocks = layout.pad(spectra.masked_fill(is_missing, 0.0))
        beyond = layout.pad(is_missing[:, 1].to(spectra.dtype))
        spacing = config.cutoff / (config.gaussians - 1)
        centers = torch.arange(config.gaussians, device=vectors.device) * spacing
        window, bumps = [], []
        for block, missing in zip(blocks, beyond, strict=True):
            # each node of a graph has its eigenvalues; the first one is read
            eigenvalues = block[:, 0, 1, :, None]  # [graphs, eigenvectors, 1]
            fade = (2 * eigenvalues / config.cutoff - 1).clamp(0, 1)
            window.append(0.5 * (1 + torch.cos(math.pi * fade)) * (1 - missing[:, 0, :, None]))
            bumps.append(torch.exp(-0.5 * ((eigenvalues - centers) / spacing).square()))
        return cls(layout, [block[:, :, 0] for block in blocks], bumps, window)


class SpectralFilter(GlobalModel):
    r"""Multiply the spectrum of each channel by a learned function of the eigenvalue.

    .. math::
        y = U \big(\hat g(\Lambda) \odot U^\top (x \odot \mathrm{SiLU}(W_4 W_3 x))\big), \quad
        \hat g(\lambda) = w(\lambda)\, W_2 W_1 \phi(\lambda)

    https://arxiv.org/abs/2405.19121. U and Lambda are the lowest eigenvectors and eigenvalues of
    Deg - Adj (of the normalised Laplacian there), phi Gaussians along the eigenvalues and w a
    window that falls to 0 at the cutoff. Neither signs nor a rotation of eigenvectors of the same
    eigenvalue change y. The filter starts at 0: at first the branch adds nothing.

    Args:
        channels: Width of the node embeddings.
        config: Options.
    """

    def __init__(self, channels: int, config: SpectralConfig | None = None) -> None:
        super().__init__()
        self.config = config or SpectralConfig()
        narrow = math.ceil(FILTER_SHARE * channels), math.ceil(GATE_SHARE * channels)
        last = nn.Linear(narrow[0], channels, bias=False)
        nn.init.zeros_(last.weight)
        self.filter = nn.Sequential(nn.Linear(self.config.gaussians, narrow[0], bias=False), last)
        self.gate = nn.Sequential(
            nn.Linear(channels, narrow[1]), nn.Linear(narrow[1], channels), nn.SiLU()
        )

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        basis = SpectralBasis.of(topology, self.config)
        filtered = []
        for dense, vectors, bumps, window in zip(
            basis.layout.pad(x * self.gate(x)),
            *(basis.vectors, basis.bumps, basis.window),
            strict=True,
        ):
            U = vectors.to(dense.dtype)
            spectrum = U.mT @ dense  # [graphs, eigenvectors, channels]
            response = self.filter(bumps.to(x.dtype)) * window
            filtered.append(U @ (spectrum * response).to(dense.dtype))
        return basis.layout.unpad(filtered)


class SpectralLayer(nn.Module):
    r"""Sum of a layer and a spectral filter of the same input.

    .. math:: x' = \mathrm{layer}(x, e) + \mathrm{filter}(x)

    Args:
        layer: Called `layer(x, e, topology) -> (x, e)`.
        spectral_filter: The filter.
        dropout: Rate on the output of the filter.
    """

    def __init__(
        self, layer: nn.Module, spectral_filter: SpectralFilter, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layer, self.spectral_filter = layer, spectral_filter
        self.dropout = Dropout(dropout)
        number_dropouts(self)

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        out, e = self.layer(x, e, topology)
        far = self.spectral_filter(x, topology)
        return out + self.dropout(far, topology.dropout_seed), e

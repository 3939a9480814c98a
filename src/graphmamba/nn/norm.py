"""Normalisation and dropout that know padding, graphs and seeds."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_fraction
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.ops.batch_norm import Running, reference
from graphmamba.ops.dropout import Drop, dropped
from graphmamba.ops.segments import sum_segments, take_rows

Rows = Float[Tensor, "rows channels"]
NormName = Literal["batch", "layer", "graph", "none"]
"""`batch`: BatchNorm over all nodes, as in every published Graph-Mamba; `layer`: LayerNorm of each
row; `graph`: LayerNorm over all rows of a graph at once, which is what PyTorch Geometric's
LayerNorm does and the tuned LRGB recipes mean by a layer norm."""


class BatchNorm(nn.BatchNorm1d):
    r"""BatchNorm over the rows of a batch, of which the last ones may be padding.

    .. math:: y = \frac{x - \mathrm{E}[x]}{\sqrt{\mathrm{Var}[x] + \epsilon}} \odot w + b

    One row has no variance and no row has no mean: such batches are normalised with the running
    statistics, which they leave as they are, where PyTorch would raise in training.
    """

    is_synced: bool = False
    """Whether the batches of all processes are normalised together (`sync_norms`)."""

    def forward(self, input: Rows, count: Int[Tensor, ""] | None = None) -> Rows:  # noqa: A002
        """Normalise each channel over the first `count` rows, all if None; the others become 0."""
        return reference.batch_norm(
            *(input, self.weight, self.bias, self.running()),
            is_training=self.training,
            eps=self.eps,
            count=count,
            is_synced=self.is_synced and self.training,
        )

    def running(self) -> Running:
        """Return the statistics that evaluation normalises with."""
        mean, variance, momentum = self.running_mean, self.running_var, self.momentum
        if mean is None or variance is None or momentum is None:
            raise UserError("a norm must have running statistics and a momentum, got None")
        return Running(mean, variance, self.num_batches_tracked, momentum)


class NoNorm(nn.Module):
    """In the place of a `BatchNorm`: the rows as they are."""

    def forward(
        self,
        rows: Rows,
        count: Int[Tensor, ""] | None = None,  # noqa: ARG002 - called as a BatchNorm is
    ) -> Rows:
        """Return the rows."""
        return rows


def sync_norms(module: nn.Module) -> None:
    """Let the norms of a model look at the batches of all processes together, on any device.

    Takes the place of `torch.nn.SyncBatchNorm.convert_sync_batchnorm`, whose norms know nothing
    of padding, and want a GPU.
    """
    for norm in norms_of(module):
        norm.is_synced = True


def norms_of(module: nn.Module) -> list[BatchNorm]:
    """All batch norms inside of a module."""
    return [part for part in module.modules() if isinstance(part, BatchNorm)]


class GraphLayerNorm(nn.Module):
    """LayerNorm over all rows and channels of a graph at once.

    Args:
        channels: Width of the rows.
        eps: Added to the variance.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Centre and scale every graph by itself."""
        centred = x - self._graph_mean(x, topology)
        variance = self._graph_mean(centred.square(), topology)
        return centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias

    def _graph_mean(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes 1"]:
        ptr = topology.starts()
        sums = sum_segments(x.mean(dim=1, keepdim=True), topology.batch, ptr)  # [graphs, 1]
        means = sums / ptr.diff().clamp_min(1)[:, None]
        return take_rows(means, topology.batch, ptr)


KINDS: dict[NormName, type[BatchNorm] | type[nn.LayerNorm] | type[GraphLayerNorm]] = {
    "batch": BatchNorm,
    "layer": nn.LayerNorm,
    "graph": GraphLayerNorm,
}


class NodeNorm(nn.Module):
    """The normalisation of that name, called alike whether or not it looks at graphs.

    Args:
        name: Which one.
        channels: Width of the rows.
        weight: What its weights start with.
    """

    def __init__(self, name: NormName, channels: int, weight: float = 1.0) -> None:
        super().__init__()
        check_choice("norm", name, get_args(NormName))
        self.name = name
        self.norm: nn.Module = nn.Identity()
        if name != "none":
            norm = KINDS[name](channels)
            nn.init.constant_(norm.weight, weight)
            self.norm = norm

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Normalise the node embeddings."""
        if self.name == "batch":
            return self.norm(x, topology.num_real_nodes)
        return self.norm(x, topology) if self.name == "graph" else self.norm(x)


class Dropout(nn.Module):
    r"""Dropout whose mask follows from a seed, the place in the model, the row and the channel.

    .. math:: y = x \odot m / (1 - p), \quad m \in \{0, 1\}, \quad P(m = 0) = p

    Args:
        rate: p, in training.
    """

    site: int = 0
    """Tells apart the dropouts that share a seed (`number_dropouts`)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_fraction("dropout", rate)
        self.rate = rate

    def forward(
        self, x: Float[Tensor, "rows channels"], seed: Int[Tensor, ""] | None = None
    ) -> Float[Tensor, "rows channels"]:
        """Drop entries in training; without a seed, PyTorch's generator draws one."""
        if not (self.training and self.rate):
            return x
        if seed is None:
            seed = torch.randint(1 << 62, (), device=x.device)
        return dropped(x, Drop(self.rate, seed, self.site))


def number_dropouts(module: nn.Module) -> None:
    """Give the dropouts inside of a module, which share a seed, a number each."""
    parts = [part for part in module.modules() if isinstance(part, Dropout)]
    for number, part in enumerate(parts):
        part.site = number

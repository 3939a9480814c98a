"""Norms and dropout for packed and padded batches."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_fraction
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.ops.backends import TritonBackend
from graphmamba.ops.batch_norm import Running, batch_norm_act
from graphmamba.ops.dropout import Drop, dropped
from graphmamba.ops.segments import sum_segments, take_rows

Rows = Float[Tensor, "rows channels"]
NormName = Literal["batch", "layer", "graph", "none"]
"""`batch`: BatchNorm over all nodes, as in every published Graph-Mamba; `layer`: LayerNorm of each
row; `graph`: LayerNorm over all rows of a graph at once, which is what PyTorch Geometric's
LayerNorm does and the tuned LRGB recipes mean by a layer norm."""


class BatchNorm(nn.BatchNorm1d):
    r"""BatchNorm over the rows of a batch, without those of a padding graph.

    .. math:: y = \frac{x - \mathrm{E}[x]}{\sqrt{\mathrm{Var}[x] + \epsilon}} \odot w + b

    Batches of one row or none are normalised with the running statistics and do not update them,
    where PyTorch would raise in training.
    """

    is_synced: bool = False
    """Whether statistics are synchronised over processes (`sync_norms`)."""
    backend: TritonBackend = "auto"
    """What runs it, as for `ops.batch_norm`."""

    def forward(self, input: Rows, count: Int[Tensor, ""] | None = None) -> Rows:  # noqa: A002
        """Normalise over the first `count` rows, all if None; the others become 0."""
        return batch_norm_act(
            *(input, self.weight, self.bias, self.running()),
            is_training=self.training,
            eps=self.eps,
            count=count,
            is_synced=self.is_synced and self.training,
            backend=self.backend,
        )

    def running(self) -> Running:
        """Return the running statistics."""
        mean, variance, momentum = self.running_mean, self.running_var, self.momentum
        if mean is None or variance is None or momentum is None:
            raise UserError("a norm must have running statistics and a momentum, got None")
        return Running(mean, variance, self.num_batches_tracked, momentum)


class NoNorm(nn.Module):
    """Identity, in place of a `BatchNorm`."""

    def forward(
        self,
        rows: Rows,
        count: Int[Tensor, ""] | None = None,  # noqa: ARG002 - called as a BatchNorm is
    ) -> Rows:
        """Return the rows."""
        return rows


def sync_norms(module: nn.Module) -> None:
    """Synchronise the BatchNorm statistics of a model over all processes, on any device.

    Replaces `torch.nn.SyncBatchNorm.convert_sync_batchnorm`, which does not support padding and
    needs a GPU.
    """
    for norm in norms_of(module):
        norm.is_synced = True


def norms_of(module: nn.Module) -> list[BatchNorm]:
    """All BatchNorms of a module."""
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
    """The norm of a given name, with one signature for all.

    Args:
        name: Kind of norm.
        channels: Width of the rows.
        weight: Initial weight.
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
    r"""Dropout whose mask is a function of seed, module, row and channel.

    .. math:: y = x \odot m / (1 - p), \quad m \in \{0, 1\}, \quad P(m = 0) = p

    Args:
        rate: p, in training.
    """

    site: int = 0
    """Number of the module among those that share a seed (`number_dropouts`)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_fraction("dropout", rate)
        self.rate = rate

    def forward(
        self, x: Float[Tensor, "rows channels"], seed: Int[Tensor, ""] | None = None
    ) -> Float[Tensor, "rows channels"]:
        """Drop entries in training; without a seed, torch's generator draws one."""
        if not (self.training and self.rate):
            return x
        if seed is None:
            seed = torch.randint(1 << 62, (), device=x.device)
        return dropped(x, Drop(self.rate, seed, self.site))


def has_dropout(module: nn.Module) -> bool:
    """Whether a module drops anything in training."""
    return any(isinstance(part, Dropout) and part.rate > 0 for part in module.modules())


def number_dropouts(module: nn.Module) -> None:
    """Number the dropouts of a module, which share a seed."""
    parts = [part for part in module.modules() if isinstance(part, Dropout)]
    for number, part in enumerate(parts):
        part.site = number

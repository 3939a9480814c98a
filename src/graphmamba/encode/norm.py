"""Batch normalisation that also takes batches of one row, of none, and of ghosts."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.encode.activation import Activation
from graphmamba.encode.batch_norm import Drop, Running, activate_drop, batch_norm_act
from graphmamba.errors import UserError
from graphmamba.fusing import FusedBackend

PLACES = 2
"""Dropouts of a norm: before and after it."""

Rows = Float[Tensor, "rows channels"]


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over all rows of the batch, with what its neighbours add and drop.

    One row has no variance and no row has no mean: such batches are normalised with the running
    statistics, which they leave as they are, where PyTorch would raise in training.
    """

    site: int = 0
    """Tells the norms of a model apart, so that they drop different entries (`number_norms`)."""
    is_synced: bool = False
    """Whether the batches of all processes are normalised together (`sync_norms`)."""
    backend: FusedBackend = "auto"
    """What runs it."""

    def forward(
        self,
        input: Rows,  # noqa: A002 - as PyTorch names it
        count: Int[Tensor, ""] | None = None,
        *,
        before: Rows | None = None,
        after: Rows | None = None,
        activation: Activation = "none",
        rate_before: float = 0.0,
        rate_after: float = 0.0,
        seed: Int[Tensor, ""] | None = None,
    ) -> Rows:
        """Return `after + drop(activation(norm(before + drop(input))))`.

        Args:
            input: Rows.
            count: Rows that are real, all if None. The others, which come last, do not count:
                they become `after`, or 0.
            before: Added before the norm; nothing if None.
            after: Added at the end; nothing if None.
            activation: After the norm.
            rate_before: Rate of dropout before the norm, in training.
            rate_after: Rate of dropout after the activation, in training.
            seed: What the dropouts follow; drawn from PyTorch's generator if None.
        """
        if self.training and (rate_before or rate_after):
            # Drawn here, so that both dropouts share one.
            seed = _seed(seed, input)
        return batch_norm_act(
            *(input, self.weight, self.bias, self.running()),
            before=before,
            after=after,
            activation=activation,
            drop_before=self.drop_before(rate_before, seed, input),
            drop_after=self.drop_after(rate_after, seed, input),
            is_training=self.training,
            eps=self.eps,
            count=count,
            is_synced=self.is_synced,
            backend=self.backend,
        )

    def running(self) -> Running:
        """Return the statistics that evaluation normalises with."""
        mean, variance, momentum = self.running_mean, self.running_var, self.momentum
        if mean is None or variance is None or momentum is None:
            raise UserError("a norm must have running statistics and a momentum, got None")
        return Running(mean, variance, self.num_batches_tracked, momentum)

    def drop_before(self, rate: float, seed: Int[Tensor, ""] | None, rows: Rows) -> Drop | None:
        """Return the dropout before the norm; none but in training."""
        if not (self.training and rate):
            return None
        return Drop(rate, _seed(seed, rows), PLACES * self.site)

    def drop_after(self, rate: float, seed: Int[Tensor, ""] | None, rows: Rows) -> Drop | None:
        """Return the dropout after the activation; none but in training."""
        if not (self.training and rate):
            return None
        return Drop(rate, _seed(seed, rows), PLACES * self.site + 1)


class ActivationDropout(nn.Module):
    """Activation and dropout, between two linear maps.

    Args:
        activation: Which function.
        rate: Rate of dropout, in training.
    """

    site: int = 0
    """Tells the dropouts of a model apart (`number_norms`)."""
    backend: FusedBackend = "auto"
    """What runs it."""

    def __init__(self, activation: Activation, rate: float) -> None:
        super().__init__()
        self.activation, self.rate = activation, rate

    def forward(self, rows: Rows, seed: Int[Tensor, ""] | None = None) -> Rows:
        """Return `drop(activation(rows))`; without a seed, PyTorch's generator draws one."""
        drop = None
        if self.training and self.rate:
            drop = Drop(self.rate, _seed(seed, rows), PLACES * self.site)
        return activate_drop(rows, self.activation, drop, backend=self.backend)


class NoNorm(nn.Module):
    """In the place of a `BatchNorm`: the rows as they are."""

    def forward(
        self,
        rows: Rows,
        count: Int[Tensor, ""] | None = None,  # noqa: ARG002 - called as a BatchNorm is
    ) -> Rows:
        """Return them."""
        return rows


def number_norms(module: nn.Module, first: int = 0) -> None:
    """Number the norms and dropouts of a model, so that no two of them drop the same entries.

    Args:
        module: What holds them.
        first: Number of the first one, for a part of a model whose others are numbered apart.
    """
    parts = [part for part in module.modules() if isinstance(part, BatchNorm | ActivationDropout)]
    for number, part in enumerate(parts, start=first):
        part.site = number


def sync_norms(module: nn.Module) -> None:
    """Let the norms of a model look at the batches of all processes together, on any device.

    Takes the place of `torch.nn.SyncBatchNorm.convert_sync_batchnorm`, whose norms know nothing
    of ghosts, residuals and dropout, and want a GPU.
    """
    for norm in norms_of(module):
        norm.is_synced = True


def norms_of(module: nn.Module) -> list[BatchNorm]:
    """All batch norms inside of a module."""
    return [part for part in module.modules() if isinstance(part, BatchNorm)]


def _seed(seed: Int[Tensor, ""] | None, rows: Rows) -> Int[Tensor, ""]:
    return torch.randint(1 << 62, (), device=rows.device) if seed is None else seed

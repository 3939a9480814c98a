"""Batch normalisation that also takes batches of one row, of none, and of padding."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.errors import UserError
from graphmamba.ops.batch_norm import Running, reference

Rows = Float[Tensor, "rows channels"]


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

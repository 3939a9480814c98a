"""Batch normalisation that also takes batches of one row, of none, and of ghosts."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over all rows of the batch.

    One row has no variance and no row has no mean: such batches are normalised with the running
    statistics, which they leave as they are, where PyTorch would raise in training.
    """

    def forward(
        self,
        input: Float[Tensor, "rows channels"],  # noqa: A002 - as PyTorch names it
        count: Int[Tensor, ""] | None = None,
    ) -> Float[Tensor, "rows channels"]:
        """Normalise each channel.

        Args:
            input: Rows.
            count: Rows that are real, all if None. The others, which come last, do not count:
                they become 0, and get no gradient.
        """
        if count is not None:
            return self._masked(input, count)
        if self.training and input.shape[0] < 2:  # noqa: PLR2004
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)

    def _masked(
        self, rows: Float[Tensor, "rows channels"], count: Int[Tensor, ""]
    ) -> Float[Tensor, "rows channels"]:
        is_real = (torch.arange(rows.shape[0], device=rows.device) < count)[:, None]
        mean, variance = self.running_mean, self.running_var
        assert mean is not None
        assert variance is not None
        if self.training:
            mean, variance = self._statistics(torch.where(is_real, rows, 0), is_real, count)
        centred = torch.where(is_real, rows - mean, 0)
        scaled = centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        return torch.where(is_real, scaled, 0)

    def _statistics(
        self, rows: Float[Tensor, "rows channels"], is_real: Tensor, count: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
        """Mean and variance of the real rows; their running means are updated."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        number = count.clamp_min(1).to(rows.dtype)
        mean = rows.sum(dim=0) / number
        variance = torch.where(is_real, rows - mean, 0).square().sum(dim=0) / number
        is_enough = count >= 2  # noqa: PLR2004
        with torch.no_grad():
            step = self.momentum * is_enough.to(mean.dtype)
            unbiased = variance * number / (number - 1).clamp_min(1)
            self.running_mean.lerp_(mean.detach(), step)
            self.running_var.lerp_(unbiased.detach(), step)
            self.num_batches_tracked.add_(is_enough)
        return (
            torch.where(is_enough, mean, self.running_mean),
            torch.where(is_enough, variance, self.running_var),
        )


class NoNorm(nn.Module):
    """In the place of a `BatchNorm`: the rows as they are."""

    def forward(
        self,
        rows: Float[Tensor, "rows channels"],
        count: Int[Tensor, ""] | None = None,  # noqa: ARG002 - called as a BatchNorm is
    ) -> Float[Tensor, "rows channels"]:
        """Return them."""
        return rows

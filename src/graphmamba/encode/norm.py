"""Batch normalisation that also takes batches of one row, and of none."""

from jaxtyping import Float
from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over all rows of the batch.

    One row has no variance and no row has no mean: such batches are normalised with the running
    statistics, which they leave as they are, where PyTorch would raise in training.
    """

    def forward(self, input: Float[Tensor, "rows channels"]) -> Float[Tensor, "rows channels"]:  # noqa: A002
        """Normalise each channel."""
        if self.training and input.shape[0] < 2:  # noqa: PLR2004
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)

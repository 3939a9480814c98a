"""Sum, batch normalisation, activation, dropout and sum, in plain PyTorch."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, distributed
from torch.nn import functional

from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.dropout import Drop, dropped

Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]

# Rows are centred first where mean^2 exceeds FAR times the variance. On a CPU, PyTorch folds the
# mean into the bias: a mean of a thousand standard deviations then costs three of seven digits.
FAR = 1e5


@dataclass(frozen=True)
class Running:
    """Running statistics, updated in place in training."""

    mean: Float[Tensor, " channels"]
    variance: Float[Tensor, " channels"]
    batches: Int[Tensor, ""] | None = None  # counts the batches, if given
    momentum: float = 0.1  # weight of a new batch

    def move(self, mean: Channels, variance: Channels, is_enough: Bool[Tensor, ""]) -> None:
        """Update with the statistics of a batch, if it has at least two rows (`is_enough`).

        Channels whose mean or variance overflowed are left out: they would never recover.
        """
        mean, variance = mean.to(self.mean.dtype), variance.to(self.variance.dtype)
        moves = is_enough & mean.isfinite() & variance.isfinite()
        with torch.no_grad():  # torch.compile does not trace it as a decorator
            self.mean.copy_(torch.where(moves, self.mean.lerp(mean, self.momentum), self.mean))
            moved = self.variance.lerp(variance, self.momentum)
            self.variance.copy_(torch.where(moves, moved, self.variance))
            if self.batches is not None:
                self.batches.add_(is_enough)


def batch_norm_act(
    x: Rows,
    weight: Channels,
    bias: Channels,
    running: Running,
    *,
    before: Rows | None = None,
    after: Rows | None = None,
    activation: Activation = "none",
    drop_before: Drop | None = None,
    drop_after: Drop | None = None,
    is_training: bool = True,
    eps: float = 1e-5,
    count: Int[Tensor, ""] | None = None,
    is_synced: bool = False,
) -> Rows:
    """Reference of `graphmamba.ops.batch_norm.batch_norm_act`."""
    rows = dropped(x, drop_before) if drop_before else x
    rows = rows if before is None else before + rows
    normed = batch_norm(
        *(rows, weight, bias, running), is_training=is_training, eps=eps, count=count,
        is_synced=is_synced,
    )  # fmt: skip
    out = activation_function(activation)(normed)
    out = dropped(out, drop_after) if drop_after else out
    return out if after is None else after + out


def batch_norm(
    x: Rows,
    weight: Channels,
    bias: Channels,
    running: Running,
    *,
    is_training: bool,
    eps: float = 1e-5,
    count: Int[Tensor, ""] | None = None,
    is_synced: bool = False,
) -> Rows:
    """Normalise each channel over the first `count` rows, all if None; other rows become 0."""
    if count is None and not is_synced:
        return _plain(x, weight, bias, running, is_training, eps)
    number = torch.arange(x.shape[0], device=x.device)
    is_real = (number < (x.shape[0] if count is None else count))[:, None]
    # `where`, since a product with the mask would keep a NaN of a padding row.
    rows = torch.where(is_real, x, 0)
    if is_training:
        mean, variance = _statistics(rows, is_real, running, is_synced)
    else:
        mean, variance = running.mean, running.variance
    scaled = (rows - mean) * torch.rsqrt(variance + eps) * weight + bias
    return torch.where(is_real, scaled.to(x.dtype), 0)


def _plain(
    rows: Rows, weight: Channels, bias: Channels, running: Running, is_training: bool, eps: float
) -> Rows:
    """PyTorch's batch norm; a single row is normalised with the running statistics."""
    if not is_training or rows.shape[0] < 2:  # noqa: PLR2004
        mean, variance = running.mean, running.variance
        if _is_far(rows, mean, variance, eps):
            rows, mean = rows - mean, torch.zeros_like(mean)
        return functional.batch_norm(rows, mean, variance, weight, bias, eps=eps)
    out, mean, variance = _by_batch_statistics(rows, weight, bias, running, eps)
    if _is_far(rows, mean, variance, eps):
        # The first mean was rounded: add the mean of the centred rows.
        out, rest, variance = _by_batch_statistics(rows - mean, weight, bias, running, eps)
        mean = mean + rest
    running.move(mean, variance, torch.ones((), dtype=torch.bool, device=rows.device))
    return out


def _by_batch_statistics(
    rows: Rows, weight: Channels, bias: Channels, running: Running, eps: float
) -> tuple[Rows, Channels, Channels]:
    """Normalise rows by their mean and unbiased variance; return all three."""
    # PyTorch updates these copies with momentum 1; `Running.move` leaves out non-finite values.
    mean, variance = torch.zeros_like(running.mean), torch.zeros_like(running.variance)
    out = functional.batch_norm(
        rows, mean, variance, weight, bias, training=True, momentum=1.0, eps=eps
    )
    return out, mean, variance


def _is_far(rows: Rows, mean: Channels, variance: Channels, eps: float) -> bool:
    """Whether the mean is so far from zero that PyTorch's CPU kernel would lose digits."""
    if rows.device.type != "cpu" or rows.dtype != mean.dtype or torch.compiler.is_compiling():
        return False
    return bool((mean.square() > FAR * (variance + eps)).any())


def _statistics(
    rows: Rows, is_real: Bool[Tensor, "rows 1"], running: Running, is_synced: bool
) -> tuple[Channels, Channels]:
    """Mean and variance of the real rows; also updates the running statistics."""
    exact = rows.to(torch.promote_types(rows.dtype, torch.float32))
    count = is_real.sum()
    if is_synced:
        count = sum_over_processes(count)
    number = count.clamp_min(1).to(exact.dtype)
    total = exact.sum(dim=0)
    mean = (sum_over_processes(total) if is_synced else total) / number
    squares = torch.where(is_real, exact - mean, 0).square().sum(dim=0)
    variance = (sum_over_processes(squares) if is_synced else squares) / number
    is_enough = count >= 2  # noqa: PLR2004 - one row has no variance
    running.move(mean.detach(), variance.detach() * number / (number - 1).clamp_min(1), is_enough)
    return (
        torch.where(is_enough, mean, running.mean),
        torch.where(is_enough, variance, running.variance),
    )


def sum_over_processes(values: Tensor) -> Tensor:
    """Sum over processes, with a gradient; a collective call in both passes, equal bits on all."""
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        return sum_over_processes(grad)

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

FAR = 1e5
"""Variances that the square of a mean may have before rows are centred. PyTorch's norm for a CPU
multiplies and adds once, the mean folded into what it adds: a mean of a thousand deviations costs
three of seven digits. Rows that are centred are gone through twice as often."""


@dataclass(frozen=True)
class Running:
    """Statistics that evaluation normalises with; changed in place by training."""

    mean: Float[Tensor, " channels"]
    variance: Float[Tensor, " channels"]
    batches: Int[Tensor, ""] | None = None
    """Number of batches taken in, where it is counted."""
    momentum: float = 0.1
    """Share of a new batch."""

    def move(
        self,
        mean: Float[Tensor, " channels"],
        variance: Float[Tensor, " channels"],
        is_enough: Bool[Tensor, ""],
    ) -> None:
        """Take in a batch, if it is large enough to have a variance.

        Rows may be so large that their squares are not finite. Such a channel is left out: it would
        never be finite again.
        """
        mean, variance = mean.to(self.mean.dtype), variance.to(self.variance.dtype)
        moves = is_enough & mean.isfinite() & variance.isfinite()
        # As a statement: compilers do not see through it as a decorator.
        with torch.no_grad():
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
    """Define `graphmamba.ops.batch_norm.batch_norm_act`; the kernels are judged by this one.

    With `is_synced`, the statistics are those of the rows of all processes.
    """
    rows = dropped(x, drop_before) if drop_before else x
    rows = rows if before is None else before + rows
    normed = batch_norm(
        *(rows, weight, bias, running),
        is_training=is_training,
        eps=eps,
        count=count,
        is_synced=is_synced,
    )
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
    """Normalise each channel over the first `count` rows, all if None; the others become 0."""
    if count is None and not is_synced:
        return _plain(x, weight, bias, running, is_training, eps)
    number = torch.arange(x.shape[0], device=x.device)
    is_real = (number < (x.shape[0] if count is None else count))[:, None]
    # A select, not a product with the mask: a NaN of a padding row must not come through.
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
    """PyTorch's own; one row has no variance and is normalised with the running statistics."""
    if is_training and rows.shape[0] < 2:  # noqa: PLR2004
        is_training = False
    if not is_training:
        mean, variance = running.mean, running.variance
        if _is_far(rows, mean, variance, eps):
            rows, mean = rows - mean, torch.zeros_like(mean)
        return functional.batch_norm(rows, mean, variance, weight, bias, eps=eps)
    out, mean, variance = _by_own(rows, weight, bias, running, eps)
    if _is_far(rows, mean, variance, eps):
        # The first mean was not exact either: what is left of it is added.
        out, rest, variance = _by_own(rows - mean, weight, bias, running, eps)
        mean = mean + rest
    running.move(mean, variance, torch.ones((), dtype=torch.bool, device=rows.device))
    return out


def _by_own(
    rows: Rows, weight: Channels, bias: Channels, running: Running, eps: float
) -> tuple[Rows, Channels, Channels]:
    """Normalise rows by their own mean and variance, which are returned too."""
    # PyTorch moves a copy the whole way, since it would take in what is not finite, too.
    mean, variance = torch.zeros_like(running.mean), torch.zeros_like(running.variance)
    out = functional.batch_norm(
        rows, mean, variance, weight, bias, training=True, momentum=1.0, eps=eps
    )
    return out, mean, variance


def _is_far(rows: Rows, mean: Channels, variance: Channels, eps: float) -> bool:
    """Whether a mean is so far from zero that it costs digits; asked on the CPU alone."""
    if rows.device.type != "cpu" or rows.dtype != mean.dtype or torch.compiler.is_compiling():
        return False
    return bool((mean.square() > FAR * (variance + eps)).any())


def _statistics(
    rows: Rows, is_real: Bool[Tensor, "rows 1"], running: Running, is_synced: bool
) -> tuple[Channels, Channels]:
    """Mean and variance of the real rows; the running ones move towards them."""
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
    """Add up the values of all processes, which have to ask for it and for its gradient together.

    Every process gets the same bits.
    """
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
        # the total of each process depends on the values of all
        return sum_over_processes(grad)

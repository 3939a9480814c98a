"""Two batch normalisations whose outputs are added, as one operation."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_fraction
from graphmamba.ops.batch_norm import Drop, Running, batch_norm_act, check_rows, is_fused
from graphmamba.ops.batch_norm.pair.operators import BatchNormPair
from graphmamba.ops.fusing import FusedBackend

__all__ = ["Norm", "batch_norm_pair"]

Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]


class Norm(NamedTuple):
    """One of the two."""

    weight: Channels
    bias: Channels
    running: Running
    """Statistics to evaluate with; training moves them in place."""
    eps: float = 1e-5
    """Added to the variance."""


def batch_norm_pair(
    a: Rows,
    b: Rows,
    first: Norm,
    second: Norm,
    *,
    before: Rows | None = None,
    drop: Drop | None = None,
    is_training: bool = True,
    count: Int[Tensor, ""] | None = None,
    backend: FusedBackend = "auto",
) -> Rows:
    r"""Normalise both over all rows, and add.

    .. math::
        y = \mathrm{BN}_1(a) + \mathrm{BN}_2(r + \mathrm{drop}(b))

    What `batch_norm_act` finds in two calls and eight kernels, forward and backward, takes four;
    the output of the first norm is never written. The same masks are dropped, and batches of fewer
    than two rows are normalised with the running statistics.

    Args:
        a: Rows of the first norm; float32, bfloat16 or float16, in the reference float64 too.
        b: Rows of the second norm, of the same shape.
        first: The norm of a.
        second: The norm of b.
        before: r, added to b before its norm; nothing if None.
        drop: Dropout of b; none if None.
        is_training: Whether the statistics are those of the batch; else the running ones.
        count: Number of real rows, all if None. The others, which come last, become 0.
        backend: `auto` is `fused` for tensors on a GPU and `reference` for the others.

    Returns:
        Rows of the type that PyTorch promotes those of a, b and r to.

    Example:
        >>> norms = [
        ...     Norm(torch.ones(2), torch.zeros(2), Running(torch.zeros(2), torch.ones(2)))
        ...     for _ in range(2)
        ... ]
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
        >>> batch_norm_pair(x, x, *norms).round()
        tensor([[-2.,  2.],
                [ 2., -2.]])
    """
    check_rows(a, b=b, before=before)
    if drop:
        check_fraction("drop.rate", drop.rate)
    drop = drop if drop and drop.rate else None
    if not is_fused(backend, False, a, b, before):
        near = batch_norm_act(
            *(a, *first[:3]), is_training=is_training, eps=first.eps, count=count,
            backend="reference",
        )  # fmt: skip
        return batch_norm_act(
            *(b, *second[:3]), before=before, after=near, drop_before=drop, eps=second.eps,
            is_training=is_training, count=count, backend="reference",
        )  # fmt: skip
    statistics = [
        value
        for norm in (first, second)
        for value in (norm.running.mean, norm.running.variance, norm.running.batches)
    ]
    return BatchNormPair.apply(
        *(a, b, before, *first[:2], *second[:2], drop and drop.seed, count, *statistics),
        *(drop.rate if drop else 0.0, drop.site if drop else 0, is_training),
        [norm.running.momentum for norm in (first, second)],
        [norm.eps for norm in (first, second)],
    )  # type: ignore[no-untyped-call]

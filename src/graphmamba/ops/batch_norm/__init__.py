"""Batch normalisation with what stands before and after it, as one operation."""

from typing import get_args

from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice, check_fraction
from graphmamba.errors import UserError
from graphmamba.ops import fusing
from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.batch_norm import reference
from graphmamba.ops.batch_norm.drop import Drop, dropped
from graphmamba.ops.batch_norm.operators import ActivateDrop, BatchNormAct
from graphmamba.ops.batch_norm.running import Running
from graphmamba.ops.fusing import FusedBackend

__all__ = ["Drop", "Running", "activate_drop", "batch_norm_act", "check_rows", "is_fused"]


Rows = Float[Tensor, "rows channels"]
Channels = Float[Tensor, " channels"]


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
    backend: FusedBackend = "auto",
) -> Rows:
    r"""Add, normalise each channel over all rows, activate, drop, add.

    .. math::
        y = a + \mathrm{drop}(\sigma(\mathrm{BN}(b + \mathrm{drop}(x))))

    A batch of fewer than two rows is normalised with the running statistics, which it leaves as
    they are. The fused form takes two kernels forward and two backward, keeps neither masks nor
    normalised rows, and gives the same bits whenever it is run again.

    Args:
        x: Rows; float32, bfloat16 or float16, in the reference float64 too, as are those below.
        weight: Scale of each channel.
        bias: Shift of each channel.
        running: Statistics to evaluate with; training moves them in place.
        before: b, added before the norm; nothing if None.
        after: a, added at the end; nothing if None.
        activation: After the norm.
        drop_before: Dropout of x; none if None.
        drop_after: Dropout after the activation; none if None.
        is_training: Whether the statistics are those of the batch; else those of `running`.
        eps: Added to the variance.
        count: Number of real rows, all if None. The others, which come last, do not count: they
            become a, or 0, and only a gets a gradient from them.
        is_synced: Whether the batches of all processes are normalised together; by the reference.
        backend: `auto` is `fused` for tensors on a GPU and `reference` for the others.

    Returns:
        Rows of the type that PyTorch promotes those of x, b and a to.

    Example:
        >>> running = Running(torch.zeros(3), torch.ones(3))
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        >>> batch_norm_act(x, torch.ones(3), torch.zeros(3), running, activation="relu").round()
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    is_kernel = is_fused(backend, is_synced, x, before, after)
    check_rows(x, before=before, after=after)
    for name, drop in {"drop_before": drop_before, "drop_after": drop_after}.items():
        if drop:
            check_fraction(f"{name}.rate", drop.rate)
    check_choice("activation", activation, get_args(Activation))
    drop_before = drop_before if drop_before and drop_before.rate else None
    drop_after = drop_after if drop_after and drop_after.rate else None
    if not is_kernel:
        return reference.batch_norm_act(
            *(x, weight, bias, running), before=before, after=after, activation=activation,
            drop_before=drop_before, drop_after=drop_after, is_training=is_training, eps=eps,
            count=count, is_synced=is_synced and is_training,
        )  # fmt: skip
    drops = drop_before, drop_after
    return BatchNormAct.apply(
        *(x, weight, bias, before, after, *(each and each.seed for each in drops), count),
        *(running.mean, running.variance, running.batches, activation),
        [each.rate if each else 0.0 for each in drops],
        [each.site if each else 0 for each in drops],
        *(is_training, running.momentum, eps),
    )  # type: ignore[no-untyped-call]


def activate_drop(
    x: Rows, activation: Activation, drop: Drop | None = None, *, backend: FusedBackend = "auto"
) -> Rows:
    """Activate, then drop: what stands between two linear maps, with the masks of the norms.

    Args:
        x: Rows.
        activation: Which function.
        drop: Dropout; none if None.
        backend: `auto` is `fused` for tensors on a GPU and `reference` for the others.
    """
    is_kernel = is_fused(backend, False, x)
    if drop is None or not drop.rate:
        return activation_function(activation)(x)
    check_fraction("drop.rate", drop.rate)
    if not is_kernel:
        return dropped(activation_function(activation)(x), drop)
    return ActivateDrop.apply(x, drop.seed, activation, drop.rate, drop.site)  # type: ignore[no-untyped-call]


def is_fused(backend: FusedBackend, is_synced: bool, *rows: Tensor | None) -> bool:
    """Tell whether kernels run; refuse them where they are asked for what they cannot do."""
    is_kernel = fusing.is_fused(backend, *rows)
    if backend == "fused" and is_synced:
        raise UserError(
            "backend must be 'reference' for a norm over several processes, got 'fused'"
        )
    return is_kernel and not is_synced


def check_rows(x: Tensor, **others: Tensor | None) -> None:
    """Refuse rows, by name, that are not like x."""
    for name, rows in others.items():
        if rows is not None and (rows.shape != x.shape or rows.device != x.device):
            raise UserError(
                f"{name} must have shape {list(x.shape)} on {x.device}, "
                f"got {list(rows.shape)} on {rows.device}"
            )

"""Batch normalisation fused with sums, activation and dropout."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.activation import Activation
from graphmamba.ops.backends import TRITON_TYPES, TritonBackend, uses_triton
from graphmamba.ops.batch_norm import reference
from graphmamba.ops.batch_norm.reference import Running
from graphmamba.ops.dropout import Drop
from graphmamba.ops.registration import launcher

__all__ = ["Drop", "Running", "batch_norm_act"]

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
    backend: TritonBackend = "auto",
) -> Rows:
    r"""Batch normalisation with the sums, activation and dropouts around it.

    .. math::
        y = a + \mathrm{drop}(\sigma(\mathrm{BN}(b + \mathrm{drop}(x))))

    A batch of fewer than two rows is normalised with the running statistics, which stay unchanged.
    The Triton form launches two kernels forward and two backward, saves neither masks nor
    normalised rows, and is bitwise reproducible.

    Args:
        x: Rows; float32, bfloat16 or float16, in the reference also float64. So are b and a.
        weight: Scale of each channel.
        bias: Shift of each channel.
        running: Running statistics, updated in place in training.
        before: b, added before the norm.
        after: a, added at the end.
        activation: Activation after the norm.
        drop_before: Dropout of x.
        drop_after: Dropout after the activation.
        is_training: Whether to use the statistics of the batch instead of the running ones.
        eps: Added to the variance.
        count: Number of real rows, all if None. The rows after them are padding: they are left out
            of the statistics, become a, or 0, and only a gets a gradient from them.
        is_synced: Whether statistics are computed over all processes; reference only.
        backend: `auto` is `triton` on a GPU, and `reference` elsewhere and under `torch.compile`.

    Returns:
        Rows of the promoted type of x, b and a.

    Example:
        >>> running = Running(torch.zeros(3), torch.ones(3))
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        >>> batch_norm_act(x, torch.ones(3), torch.zeros(3), running, activation="relu").round()
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    drop_before = drop_before if drop_before and drop_before.rate else None
    drop_after = drop_after if drop_after and drop_after.rate else None
    is_known = all(each.dtype in TRITON_TYPES for each in (x, before, after) if each is not None)
    if backend == "triton" and (is_synced or not is_known):
        what = "statistics over processes" if is_synced else f"rows of {x.dtype}"
        raise UserError(f"backend must be 'auto' or 'reference' for {what}, got 'triton'")
    is_traced = torch.compiler.is_compiling()
    if is_synced or is_traced or not is_known or not uses_triton(backend, x.device):
        return reference.batch_norm_act(
            *(x, weight, bias, running), before=before, after=after, activation=activation,
            drop_before=drop_before, drop_after=drop_after, is_training=is_training, eps=eps,
            count=count, is_synced=is_synced and is_training,
        )  # fmt: skip
    drops = drop_before, drop_after
    return _BatchNormAct.apply(
        *(x, weight, bias, before, after, *(each and each.seed for each in drops), count),
        *(running.mean, running.variance, running.batches, activation),
        [each.rate if each else 0.0 for each in drops],
        [each.site if each else 0 for each in drops],
        *(is_training, running.momentum, eps),
    )  # type: ignore[no-untyped-call]


_forward, _backward = (launcher("batch_norm.triton", name) for name in ("forward", "backward"))


class _BatchNormAct(torch.autograd.Function):
    """The kernels with their gradients; takes the arguments of `triton.forward`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Run both kernels of the forward pass."""
        out, kept = _forward(*arguments)
        x, weight, bias, before, after, *places = arguments[:8]
        ctx.settings, ctx.has_after = arguments[11:15], after is not None
        ctx.save_for_backward(kept, x, weight, bias, before, *places)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Run both kernels of the backward pass."""
        before = ctx.saved_tensors[4]
        dx, d_weight, d_bias, d_before = _backward(grad, *ctx.saved_tensors, *ctx.settings)
        if before is not None and d_before.shape != dx.shape:
            d_before = dx
        gradients = dx, d_weight, d_bias, None if before is None else d_before
        return *gradients, grad if ctx.has_after else None, *[None] * 12

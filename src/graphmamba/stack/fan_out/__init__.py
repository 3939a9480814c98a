"""Rows that several parts of a layer read, whose gradients are added up in one kernel."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.fusing import FusedBackend, is_fused
from graphmamba.operators import add_operator

Rows = Float[Tensor, "rows channels"]


def fan_out(x: Rows, count: int, *, backend: FusedBackend = "auto") -> tuple[Rows, ...]:
    """Hand out the same rows several times, one for each part that reads them.

    PyTorch adds the gradients of a tensor's readers in pairs, as they come, and each pair is read
    and written anew. The fused form waits for all of them and adds them in one pass, in the order
    of what it handed out; one that is not read costs nothing.

    Args:
        x: Rows.
        count: How often.
        backend: `auto` is `fused` for tensors on a GPU and `reference` for the others.
    """
    check_least("count", count, 1)
    if not is_fused(backend, x):
        return (x,) * count
    found: tuple[Rows, ...] = _FanOut.apply(x, count)  # type: ignore[no-untyped-call]
    return found


class _FanOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for _ in range(count))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:  # noqa: ARG004
        there = [grad for grad in grads if grad is not None]
        if len(there) > 1:
            return _OPERATOR(there), None
        return (there[0] if there else None), None


def _compute(rows: Sequence[Tensor]) -> Tensor:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.stack.fan_out.fused import add_up

    with torch.cuda.device_of(rows[0]):
        return add_up([each.contiguous() for each in rows])


def _fake(rows: Sequence[Tensor]) -> Tensor:
    return rows[0].new_empty(rows[0].shape)


_OPERATOR = add_operator("add_up_fused(Tensor[] rows) -> Tensor", _compute, _fake)

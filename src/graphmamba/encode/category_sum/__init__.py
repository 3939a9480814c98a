"""The sum of one vector for each category of a row, and its gradient without atomics."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.fusing import SINGLE, FusedBackend, is_fused

Columns = Int[Tensor, "rows columns"]
Offsets = Int[Tensor, " columns"]
Weight = Float[Tensor, "entries channels"]
Rows = Float[Tensor, "rows channels"]


def category_sum(
    columns: Columns, offsets: Offsets, weight: Weight, *, backend: FusedBackend = "auto"
) -> Rows:
    r"""Add up the vectors of a row's categories.

    .. math:: y_r = \sum_c W_{i_{rc} + o_c}

    The fused form takes one kernel, and two for the gradient; neither holds a vector for each
    category of each row, and both give the same bits whenever they are run again.

    Args:
        columns: i, the category of each row in each column.
        offsets: o, the first vector of each column.
        weight: W, the vectors of all columns; float32, in the reference any float.
        backend: `auto` is `fused` for tensors on a GPU and `reference` for the others.
    """
    if is_fused(backend, weight, types=SINGLE):
        return _CategorySum.apply(columns, offsets, weight)  # type: ignore[no-untyped-call]
    return torch.nn.functional.embedding(columns + offsets, weight).sum(dim=1)


class _CategorySum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, columns: Columns, offsets: Offsets, weight: Weight) -> Rows:
        from graphmamba.encode.category_sum import fused

        ctx.save_for_backward(columns, offsets)
        ctx.entries = weight.shape[0]
        with torch.cuda.device_of(weight):
            return fused.forward(columns, offsets, weight)

    @staticmethod
    def backward(ctx: Any, grad: Rows) -> tuple[None, None, Weight]:
        from graphmamba.encode.category_sum import fused

        columns, offsets = ctx.saved_tensors
        with torch.cuda.device_of(grad):
            return None, None, fused.backward(grad, columns, offsets, ctx.entries)

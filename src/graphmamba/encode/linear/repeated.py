"""One row that stands for many, and its linear map: what becomes of all is found once."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphmamba.encode.linear.operators import MATRIX, as_rows
from graphmamba.fusing import can_fuse_single

Row = Float[Tensor, "1 channels"]
Rows = Float[Tensor, "rows channels"]


def repeat_row(row: Row, count: int) -> Rows:
    """Return a row so many times, in the memory of one.

    Its gradient is the sum of theirs, which PyTorch finds in five times the time that it takes to
    read them.
    """
    if torch.compiler.is_compiling():
        return row.expand(count, -1)
    return RepeatRow.apply(row, count)  # type: ignore[no-untyped-call]


def is_repeated(rows: Tensor) -> bool:
    """Tell whether rows are one row, as `repeat_row` returns them."""
    return rows.dim() == MATRIX and rows.shape[0] > 1 and rows.stride(0) == 0


def sum_of_rows(rows: Rows) -> Row:
    """Add up all rows; those that are one are not even read."""
    if is_repeated(rows):
        return rows[:1] * rows.shape[0]
    if can_fuse_single(rows):
        sums: Tensor = torch.ops.graphmamba.column_sums_fused(as_rows(rows))
        return sums[None]
    return rows.sum(dim=0, keepdim=True)


class RepeatRow(torch.autograd.Function):
    """A row, repeated."""

    @staticmethod
    def forward(ctx: Any, row: Tensor, count: int) -> Tensor:  # noqa: ARG004 - as autograd calls it
        """Repeat it."""
        return row.expand(count, -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        """Add up."""
        return sum_of_rows(grad), None


class RepeatedLinear(torch.autograd.Function):
    """`linear_through` of such rows: one of them is mapped, and all gradients are of sums.

    The gradient of the rows is handed on as one row as well: whoever repeated it takes their sum,
    and that is all that there is to know.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Map one row."""
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        return functional.linear(x[:1], weight, bias).expand(x.shape[0], -1), x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, more: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Add up what comes, then go on with one row."""
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        if grad is None:
            return more, None, None
        total, dx = sum_of_rows(grad), None
        if needs_x:
            row = total @ weight
            row = row if more is None else row + sum_of_rows(more)
            dx = (row / x.shape[0]).expand(x.shape[0], -1)
        # A product of one column and one row, without the rounding of tensor cores.
        d_weight = total.T * x[:1] if needs_weight else None
        return dx, d_weight, total[0] if needs_bias else None

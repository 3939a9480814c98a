"""Rows that are two inputs side by side, and one memory for the gradients of both.

Mamba's in-projection makes the input of the convolution and the gate of the scan at once. The
gradients of these come from two kernels, and PyTorch would copy both into one tensor. Where each
kernel writes into its half of that tensor, there is nothing left to copy.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.scan.backends import choose_backend
from graphmamba.scan.options import Backend

Half = Float[Tensor, "rows inner"]


class Halves:
    """Where a backward pass writes the gradients of both halves of some rows."""

    def __init__(self) -> None:
        self._room: Tensor | None = None
        self._is_taken = [False, False]

    def take(self, half: int, like: Half) -> Half:
        """Return memory for the gradient of a half, beside that of the other if it came before.

        Args:
            half: 0 for the first, 1 for the second.
            like: The half itself.
        """
        rows, inner = like.shape
        room = self._room
        # A pass that ended early may have left one half, in which somebody may still read.
        if room is None or self._is_taken[half] or room.shape != (rows, 2 * inner):
            room, self._is_taken = like.new_empty((rows, 2 * inner)), [False, False]
        self._is_taken[half] = True
        self._room = None if all(self._is_taken) else room
        return room[:, half * inner : (half + 1) * inner]


class Split(NamedTuple):
    """Both halves of some rows."""

    first: Half
    second: Half
    halves: Halves | None
    """For the operations that find their gradients; None where each has memory of its own."""


def split_halves(
    rows: Float[Tensor, "rows two_inner"], *, backend: Backend = "auto", is_read_once: bool = True
) -> Split:
    """Split rows in the middle, as `chunk` does.

    Args:
        rows: An even number of columns.
        backend: What runs the operations that read the halves.
        is_read_once: Whether one operation alone reads each half; gradients of several are added,
            and have to be joined anyway.
    """
    # Compilers see what is copied by themselves.
    is_shared = is_read_once and rows.requires_grad and not torch.compiler.is_compiling()
    if not is_shared or choose_backend(backend, rows.device) != "fused":
        first, second = rows.chunk(2, dim=-1)
        return Split(first, second, None)
    first, second = _Split.apply(rows)  # type: ignore[no-untyped-call]
    return Split(first, second, Halves())


class _Split(torch.autograd.Function):
    """The halves, whose gradients are joined only if they are not side by side."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> tuple[Tensor, ...]:
        """Return views."""
        # Else zeros would be made for a half that nobody reads, and copied then.
        ctx.set_materialize_grads(False)
        return rows.chunk(2, dim=-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor | None:  # noqa: ARG004
        """Return both as one."""
        if first is None:
            return None if second is None else join(torch.zeros_like(second), second)
        return join(first, torch.zeros_like(first) if second is None else second)


def join(first: Half, second: Half) -> Float[Tensor, "rows two_inner"]:
    """Return both side by side: the memory that they are in if they are so already, or a copy."""
    rows, inner = first.shape
    is_one = (
        first.untyped_storage()._cdata == second.untyped_storage()._cdata
        and first.dtype == second.dtype
        and first.stride() == second.stride() == (2 * inner, 1)
        and second.storage_offset() == first.storage_offset() + inner
    )
    return first.as_strided((rows, 2 * inner), first.stride()) if is_one else _copy(first, second)


def _copy(first: Half, second: Half) -> Float[Tensor, "rows two_inner"]:
    return torch.cat([first, second], dim=-1)

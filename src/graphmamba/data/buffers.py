"""Memory of batches that are gone, for batches to come: fresh memory can cost more than copying."""

import math

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 16
"""Bytes up to which fresh memory is as good."""
MOST_FREE = 4
"""Buffers of a column that are kept while nobody uses them."""
KINDS: dict[torch.dtype, np.dtype] = {
    torch.int64: np.dtype(np.int64),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bool: np.dtype(np.bool_),
}
"""Types that both libraries know and columns are given out as; others come from torch."""

Memory = np.ndarray
"""Bytes, more than are asked for, so that they serve a somewhat larger batch too."""


class _Lent(np.ndarray):
    """An array over a buffer; when nothing reads it any more, the buffer is free again."""

    __slots__ = ("free",)
    free: list[Memory]

    def __del__(self) -> None:
        # Python adds to a list, and takes from it, in one step: threads need no lock.
        if len(self.free) < MOST_FREE and self.base is not None:
            self.free.append(self.base)


class Buffers:
    """Gives out tensors of a column, in memory that is used again once the last in it is gone.

    A tensor keeps its memory as long as itself or any view of it is there, like any other.

    Args:
        dtype: Type of the tensors.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype, self._itemsize, self._kind = dtype, dtype.itemsize, KINDS.get(dtype)
        self._free: list[Memory] = []

    def take(self, size: tuple[int, ...]) -> Tensor:
        """Return an uninitialised tensor of some shape."""
        needed = math.prod(size) * self._itemsize
        if self._kind is None:
            return torch.empty(size, dtype=self._dtype)
        if needed <= SMALL:
            return torch.from_numpy(np.empty(size, self._kind))
        array = _Lent(size, self._kind, self._find(needed))
        array.free = self._free
        return torch.from_numpy(array)

    def _find(self, needed: int) -> Memory:
        try:
            # No test whether there is one: between the two another thread could take it.
            while (memory := self._free.pop()).nbytes < needed:
                pass
        except IndexError:
            return np.empty(needed + needed // 4, np.uint8)
        return memory

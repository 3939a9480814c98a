"""Memory of batches that are gone, for batches to come: fresh memory can cost more than copying."""

import math
from weakref import ref

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 16
"""Bytes up to which torch's own allocation is as good."""
MOST_FREE = 4
"""Buffers that are kept for each column while nobody uses them."""
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


class _Lease(ref[Memory]):
    """Outlives the array over a buffer by a moment, to give the buffer back."""

    __slots__ = ("column", "memory")
    column: str
    memory: Memory


class Buffers:
    """Gives out tensors in memory that is used again once the last tensor in it is gone.

    A tensor keeps its memory as long as itself or any view of it is there, like any other.
    """

    def __init__(self) -> None:
        self._free: dict[str, list[Memory]] = {}
        # A weak reference has the hash of what it refers to, and arrays have none.
        self._leases: dict[int, _Lease] = {}

    def take(self, column: str, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor.

        Args:
            column: What it is for; each column has its own buffers, since they are alike in size.
            size: Its shape.
            dtype: Its type.
        """
        kind = KINDS.get(dtype)
        needed = math.prod(size) * dtype.itemsize
        if kind is None or needed <= SMALL:
            return torch.empty(size, dtype=dtype)
        memory = self._find(column, needed)
        array = np.ndarray(size, kind, memory)
        lease = _Lease(array, self._give_back)
        lease.column, lease.memory = column, memory
        self._leases[id(lease)] = lease
        return torch.from_numpy(array)

    def _find(self, column: str, needed: int) -> Memory:
        free = self._free.setdefault(column, [])
        while free:
            memory = free.pop()
            if memory.nbytes >= needed:
                return memory
        return np.empty(needed + needed // 4, np.uint8)

    def _give_back(self, lease: _Lease) -> None:
        del self._leases[id(lease)]
        free = self._free[lease.column]
        if len(free) < MOST_FREE:
            free.append(lease.memory)

"""Numba kernel of the sum over neighbours."""

from typing import no_type_check

from numba import types

from graphmamba.ops.cpu_compile import kernel


@no_type_check
def signature(real):
    """Types of the arguments of `sum_neighbors`."""
    numbers = types.int64[::1]
    table = types.Array(real, 2, "C")
    return types.void(types.int64, types.int64, table, numbers, numbers, numbers, table)


@kernel(signature)
@no_type_check
def sum_neighbors(first, last, rows, others, ptr, order, out):
    """Sum the rows at the other ends of each node's edges, in the order of the edges."""
    is_sorted = order.shape[0] == 0
    for node in range(first, last):
        for channel in range(out.shape[1]):
            out[node, channel] = 0.0
        for place in range(ptr[node], ptr[node + 1]):
            other = others[place] if is_sorted else others[order[place]]
            for channel in range(out.shape[1]):
                out[node, channel] += rows[other, channel]

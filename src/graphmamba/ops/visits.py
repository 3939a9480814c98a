"""Sums what the visits of a row add to its gradient, always in the same order."""

from functools import reduce
from typing import no_type_check

import torch
from jaxtyping import Float, Int
from numba import types
from torch import Tensor

from graphmamba.ops.arrays import LANES
from graphmamba.ops.cpu_compiled import kernel
from graphmamba.ops.threads import share_out


@no_type_check
def _signature(real):
    table, numbers = types.Array(real, 2, "C"), types.Array(types.int64, 1, "C")
    return types.void(types.int64, types.int64, table, numbers, table)


@kernel(_signature)
@no_type_check
def add_visits(first, last, values, rows, out):
    """Add the channels of the registers `first` to `last`, step by step."""
    low, high = first * LANES, min(last * LANES, values.shape[1])
    for t in range(values.shape[0]):
        for channel in range(low, high):
            out[rows[t], channel] += values[t, channel]


def sum_visits(
    values: Float[Tensor, "steps inner"],
    order: Int[Tensor, " steps"] | None,
    rows: int,
    *,
    is_permutation: bool,
) -> Float[Tensor, "rows inner"]:
    """The gradient of the rows that the steps have visited.

    Args:
        values: What each step adds; in a permutation, that of step `t` lies at `order[t]`.
        order: The row of step `t` is `order[t]` modulo `rows`, or `t` if None.
        rows: Number of rows.
        is_permutation: Whether `order` holds each number below its length once.
    """
    if order is None:
        return values
    if values.shape[0] == 0 or not is_permutation:
        out = values.new_zeros((rows, values.shape[1]))
        registers = -(-values.shape[1] // LANES)
        visited = (order.long() % max(rows, 1)).numpy()
        add = add_visits(values.numpy().dtype)
        share_out(add, registers, values.numpy(), visited, out.numpy())
        return out
    return reduce(torch.add, values.view(-1, rows, values.shape[1]).unbind())

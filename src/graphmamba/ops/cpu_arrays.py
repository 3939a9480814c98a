"""Hands tensors to compiled kernels: one real type, dense rows, as many threads as torch uses."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, reduce
from itertools import pairwise
from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import types
from torch import SymInt, Tensor

from graphmamba.ops.cpu_compile import kernel

REGISTER_BYTES = 64

LANES = REGISTER_BYTES // 4
"""Channels are filled up to a multiple: a register of the shorter real type, two of the longer."""


def fill_up(count: int | SymInt, multiple: int) -> int | SymInt:
    """The next multiple."""
    return (count + multiple - 1) // multiple * multiple


def real_type(tensor: Float[Tensor, "..."]) -> torch.dtype:
    """The type that kernels compute in."""
    return torch.promote_types(tensor.dtype, torch.float32)


def as_rows(
    tensor: Float[Tensor, "rows columns"], real: torch.dtype
) -> Float[np.ndarray, "rows columns"]:
    """An array whose rows are dense; a copy only where type or layout ask for one."""
    tensor = tensor.detach().to(real)
    return (tensor if tensor.stride(1) == 1 else tensor.contiguous()).numpy()


def as_parameter(
    tensor: Float[Tensor, "..."] | None, shape: tuple[int | SymInt, ...], real: torch.dtype
) -> Float[np.ndarray, "..."]:
    """An array of that shape, filled up with 0."""
    filled = torch.zeros(shape, dtype=real)
    if tensor is not None:
        filled[tuple(map(slice, tensor.shape))] = tensor.detach()
    return filled.numpy()


def add_groups(
    partial: Float[np.ndarray, "groups ..."], like: Float[Tensor, "..."] | None
) -> Float[Tensor, "..."]:
    """The sum over groups, in the shape and type of the parameter; without one, shape (0,)."""
    if like is None:
        return torch.empty(0)
    # NumPy adds the groups one after another, on one thread.
    whole = torch.from_numpy(partial.sum(0, dtype=np.float64))
    return whole[tuple(map(slice, like.shape))].to(like.dtype).contiguous()


# More shares than threads, since some take longer.
SHARES_PER_THREAD = 4


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="graphmamba")


# A child process inherits the pool, but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def share_out(kernel: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call `kernel(first, last, *arguments)` on parts of `range(count)` until all is done."""
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        kernel(0, count, *arguments)
        return
    shares = min(count, SHARES_PER_THREAD * threads)
    bounds = [count * share // shares for share in range(shares + 1)]
    calls = [
        _pool(threads).submit(kernel, first, last, *arguments) for first, last in pairwise(bounds)
    ]
    for call in calls:
        call.result()


@no_type_check
def _signature(real):
    table, numbers = types.Array(real, 2, "C"), types.Array(types.int64, 1, "C")
    return types.void(types.int64, types.int64, table, numbers, table)


@kernel(_signature)
@no_type_check
def add_by_row(first, last, values, rows, out):
    """Add the channels of the registers `first` to `last`, step by step."""
    low, high = first * LANES, min(last * LANES, values.shape[1])
    for t in range(values.shape[0]):
        for channel in range(low, high):
            out[rows[t], channel] += values[t, channel]


def sum_by_row(
    values: Float[Tensor, "steps inner"],
    order: Int[Tensor, " steps"] | None,
    rows: int,
    *,
    is_permutation: bool,
) -> Float[Tensor, "rows inner"]:
    """The gradient of the rows that the steps have read, always added in the same order.

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
        read = (order.long() % max(rows, 1)).numpy()
        add = add_by_row(values.numpy().dtype)
        share_out(add, registers, values.numpy(), read, out.numpy())
        return out
    return reduce(torch.add, values.view(-1, rows, values.shape[1]).unbind())

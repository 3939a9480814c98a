"""Passes tensors to Numba kernels as arrays, on as many threads as PyTorch uses."""

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
LANES = REGISTER_BYTES // 4  # channels are padded to a multiple: one register of float32


def fill_up(count: int | SymInt, multiple: int) -> int | SymInt:
    """Round up to a multiple."""
    return (count + multiple - 1) // multiple * multiple


def real_type(tensor: Float[Tensor, "..."]) -> torch.dtype:
    """Type that kernels compute in."""
    return torch.promote_types(tensor.dtype, torch.float32)


def as_rows(
    tensor: Float[Tensor, "rows columns"], real: torch.dtype
) -> Float[np.ndarray, "rows columns"]:
    """Array with dense rows, copied only if type or strides differ."""
    tensor = tensor.detach().to(real)
    return (tensor if tensor.stride(1) == 1 else tensor.contiguous()).numpy()


def as_indices(values: Int[Tensor, " entries"] | None) -> Int[np.ndarray, " _"]:
    """Dense int64 array; empty for None."""
    return np.empty(0, np.int64) if values is None else values.long().contiguous().numpy()


def as_parameter(
    tensor: Float[Tensor, "..."] | None, shape: tuple[int | SymInt, ...], real: torch.dtype
) -> Float[np.ndarray, "..."]:
    """Array of the given shape, padded with 0."""
    filled = torch.zeros(shape, dtype=real)
    if tensor is not None:
        filled[tuple(map(slice, tensor.shape))] = tensor.detach()
    return filled.numpy()


def add_groups(
    partial: Float[np.ndarray, "groups ..."], like: Float[Tensor, "..."] | None
) -> Float[Tensor, "..."]:
    """Sum over groups in the shape and type of the parameter `like`; shape (0,) for None."""
    if like is None:
        return torch.empty(0)
    whole = torch.from_numpy(partial.sum(0, dtype=np.float64))  # in a fixed order, on one thread
    return whole[tuple(map(slice, like.shape))].to(like.dtype).contiguous()


SHARES_PER_THREAD = 4  # balances shares of different duration


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="graphmamba")


# A forked process inherits the pool without its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def share_out(kernel: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call `kernel(first, last, *arguments)` on parts of `range(count)` in parallel."""
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
    """Sum by row, for the channels of the registers `first` to `last`."""
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
    """Sum `values` over the steps that read each row, in a fixed order.

    Args:
        values: Gradient of each step; in a permutation, that of step `t` is at `order[t]`.
        order: Step `t` reads row `order[t] % rows`; row `t` if None.
        rows: Number of rows.
        is_permutation: Whether `order` is a permutation of the steps.
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

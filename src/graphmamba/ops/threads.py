"""Runs a kernel on as many threads as torch uses.

Kernels give up the interpreter lock, so plain threads do. Numba's own would count apart from torch,
end the process when two callers meet, and double the time to compile.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch

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

"""Work on many items side by side, one thread each, behind one progress bar."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
CPU = torch.device("cpu")


def track(items: Iterable[Item], title: str, total: int | None) -> Iterator[Item]:
    """Hand the items on and draw how many are done, on a terminal only; None: nobody knows."""
    from rich.console import Console
    from rich.progress import track as draw

    console = Console(stderr=True)
    yield from draw(
        items, description=title, total=total, console=console, disable=not console.is_terminal
    )


def run_all(
    work: Callable[[Item], None], items: Sequence[Item], title: str, device: torch.device = CPU
) -> None:
    """Call `work` once for each item.

    On the CPU as many items at once as torch has threads, and each on one thread: several threads
    inside one small matrix gain nothing, and those of NumPy's library, which has a pool of its own,
    would wait for one another. The results do not depend on who is done first, as long as every
    item writes rows of its own.
    """
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    count = threads if device.type == "cpu" else 1
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        try:
            for _ in track(pool.map(work, items), title, len(items)):
                pass
        finally:
            # after a mistake or Ctrl-C nothing new is begun
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)

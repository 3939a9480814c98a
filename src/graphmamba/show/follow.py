"""A bar for what takes a while on the way to a file or a table; silent where nobody watches."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from graphmamba.training.predict import Predictions


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Draw a bar on a terminal, and on nothing else.

    Args:
        title: What is going on.

    Yields:
        Whom to tell how much is done, and of how much.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def follow(parts: Iterable[Predictions], graphs: int) -> Iterator[Predictions]:
    """Hand predictions on and draw how many graphs are done.

    Args:
        parts: Predictions, batch after batch.
        graphs: How many graphs there are in all.
    """
    done = 0
    with bar("predicting") as tell:
        for part in parts:
            yield part
            done += len(part.graph.unique())
            tell(done, graphs)

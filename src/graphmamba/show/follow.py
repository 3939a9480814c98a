"""A bar for predictions on their way to a file; silent where nobody watches."""

from collections.abc import Iterable, Iterator

from graphmamba.train.predictions import Predictions


def follow(parts: Iterable[Predictions], graphs: int) -> Iterator[Predictions]:
    """Hand predictions on and draw how many graphs are done, on a terminal only.

    Args:
        parts: Predictions, batch after batch.
        graphs: How many graphs there are in all.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("predicting", total=graphs)
        for part in parts:
            yield part
            progress.advance(task, len(part.graph.unique()))

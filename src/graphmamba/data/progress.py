"""A bar for work that takes a while; silent where nobody watches."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], title: str, total: int) -> Iterator[Item]:
    """Hand the items on and draw how many of them are done, on a terminal only."""
    from rich.console import Console
    from rich.progress import track as draw

    console = Console(stderr=True)
    yield from draw(
        items, description=title, total=total, console=console, disable=not console.is_terminal
    )

"""A bar for work that takes a while; silent where nobody watches."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], title: str, total: int | None) -> Iterator[Item]:
    """Hand the items on and draw how many are done, on a terminal only; None: nobody knows."""
    from rich.console import Console
    from rich.progress import track as draw

    console = Console(stderr=True)
    yield from draw(
        items, description=title, total=total, console=console, disable=not console.is_terminal
    )

"""One voice for a command that runs in several processes."""

import os


def is_first_process() -> bool:
    """Whether this process speaks for all: the one of rank 0, or the only one."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def say(*lines: object) -> None:
    """Print lines or rich tables, in the first process only.

    Lines are printed as they are: a path may well look like markup.
    """
    from rich.console import Console

    if is_first_process():
        console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        for line in lines:
            console.print(line)

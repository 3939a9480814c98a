"""Tables, records and figures as studies and benchmarks write them."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from graphmamba.atomic import write_text
from graphmamba.figures import write_figure

WIDE = 140
"""Default width of a line in characters."""
INK, QUIET, RULE = "#22272e", "#7a828c", "#e3e6ea"
COLOURS = ("#0b6e6e", "#d1495b", "#edae49", "#7a5195", "#3d7dca", "#8d99ae")
"""Told apart also by those who see fewer colours; the first is ours."""


def page() -> Console:
    """Make a console for tables; a file or a pipe has room for wide ones."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 2
) -> Group:
    """Lay out text in columns under a title, light enough for a terminal of 80 characters.

    Args:
        title: What stands above them.
        columns: What they are called.
        rows: A cell for each of them.
        words: How many come first that hold words; the others hold numbers.
    """
    made = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    for place, column in enumerate(columns):
        # where there is no room, names go on in the next line: no number is cut or broken
        style: dict[str, Any] = {"no_wrap": True, "justify": "right"} if place >= words else {}
        made.add_column(Text(column), overflow="fold", **style)
    for row in rows:
        # names are a user's own words, no markup
        made.add_row(*map(Text, row))
    # a title of the table itself would be wrapped to its width
    return Group(Text(title, style="bold"), made)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out text as the lines of a table in Markdown."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (columns, *rows))
    return [head, "|" + "---|" * len(columns), *lines]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write measurements whole; dataclasses in them become objects."""
    write_text(path, json.dumps(content, indent=2, default=_as_object) + "\n")


def _as_object(value: object) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows that have the same columns; no row makes no file."""
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def save_figure(figure: Any, path: Path, endings: Sequence[str] = ("png", "svg")) -> None:
    """Style a figure and write it whole or not at all; the path comes without an ending."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(QUIET)
        panel.tick_params(colors=QUIET, labelsize=8, labelcolor=INK)
        axis = "both" if panel.get_xscale() == "log" else "y"
        panel.grid(visible=True, axis=axis, color=RULE, linewidth=0.8)
        panel.set_axisbelow(True)
    for ending in endings:
        write_figure(figure, path.with_suffix(f".{ending}"))

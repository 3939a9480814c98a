"""Tables, JSON and CSV files and figures of studies and benchmarks."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from graphmamba.atomic import write_text
from graphmamba.figures import write_figure

INK, QUIET, RULE = "#22272e", "#7a828c", "#e3e6ea"
COLOURS = ("#0b6e6e", "#d1495b", "#edae49", "#7a5195", "#3d7dca", "#8d99ae")
"""Distinguishable with colour blindness; the first is Graph-Mamba's."""


def page() -> Console:
    """Make a console for tables, 140 characters wide where the output is a file or a pipe."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 140
    return console


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 2
) -> Group:
    """Make a rich table that fits into a terminal of 80 characters.

    Args:
        title: Line above the table.
        columns: Titles of the columns.
        rows: One text per column.
        words: Number of columns with text, which come first; the others hold numbers.
    """
    made = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    for place, column in enumerate(columns):
        # in a narrow terminal text is wrapped, numbers never are
        style: dict[str, Any] = {"no_wrap": True, "justify": "right"} if place >= words else {}
        made.add_column(Text(column), overflow="fold", **style)
    for row in rows:
        made.add_row(*map(Text, row))  # as Text, since names may look like markup
    # rich would wrap a title of the table itself to the table's width
    return Group(Text(title, style="bold"), made)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (columns, *rows))
    return [head, "|" + "---|" * len(columns), *lines]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file; dataclasses become objects."""
    write_text(path, json.dumps(content, indent=2, default=asdict) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows with the same columns; without rows there is no file."""
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def save_figure(figure: Any, path: Path, endings: Sequence[str] = ("png", "svg")) -> None:
    """Style the axes of a figure and write it; `path` has no ending."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(QUIET)
        panel.tick_params(colors=QUIET, labelsize=8, labelcolor=INK)
        axis = "both" if panel.get_xscale() == "log" else "y"
        panel.grid(visible=True, axis=axis, color=RULE, linewidth=0.8)
        panel.set_axisbelow(True)
    for ending in endings:
        write_figure(figure, path.with_suffix(f".{ending}"))

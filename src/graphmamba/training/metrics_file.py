"""`metrics.csv`: one row an epoch, whole rows only, whenever the run is killed."""

import csv
import errno
import io
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from graphmamba.errors import UserError
from graphmamba.whole_files import cannot_write, write_text

Row = Mapping[str, int | float]
WRITING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
"""A pipe that nobody reads is no place for rows, and would be waited for."""
Line = tuple[int, str, list[float] | None]
"""Number, text, and values where it is a row."""
SHOWN = 8
"""Damaged lines that a message names."""


def append_row(path: Path, row: Row) -> None:
    """Add a row, and before the first one the names of the columns."""
    lines = [list(row)] if not path.exists() else []
    lines.append([_exact(value) for value in row.values()])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    try:
        # one write to the end of a file arrives whole when we are killed; a full disk cuts it short
        handle = os.open(path, WRITING, 0o666)
        try:
            wanted = text.getvalue().encode()
            if os.write(handle, wanted) < len(wanted):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as mistake:
        raise cannot_write(path, mistake) from mistake


def read_rows(path: Path) -> list[dict[str, float]]:
    """Read all rows; one that was cut short is left out, and a damaged one refused."""
    names, rows = _lines(path)
    for number, _, values in rows:
        if values is None:
            raise UserError(f"'{path}' must hold a number in each column, not so in line {number}")
    return [dict(zip(names, values, strict=True)) for _, _, values in rows if values is not None]


def cut_rows(path: Path, epochs: int) -> None:
    """Keep the rows of the first epochs: those after a saved state are made again."""
    if not path.is_file():
        return
    names, rows = _lines(path)
    kept, dropped, last = [",".join(names)], [], -1.0
    for number, line, values in rows:
        # of rows that have lost their place, none can be told to be the right one
        if values is None or not last < values[0] or values[0] != int(values[0]):
            dropped.append(number)
        elif values[0] < epochs:
            last = values[0]
            kept.append(line)
    if dropped:
        told = ", ".join(map(str, dropped[:SHOWN])) + (", ..." if len(dropped) > SHOWN else "")
        warnings.warn(
            f"'{path}' is damaged: {len(dropped)} of its lines dropped ({told})", stacklevel=2
        )
    if len(kept) > 1:
        write_text(path, "\n".join(kept) + "\n")
    else:
        path.unlink()


def _lines(path: Path) -> tuple[list[str], list[Line]]:
    """Names of the columns, and all whole lines below, those that are no row without values."""
    if not path.is_file():
        return [], []
    # by newlines alone: a damaged line may hold whatever else `splitlines` parts lines at
    first, *others = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    names = first.split(",")
    rows: list[Line] = []
    for number, line in enumerate(others, 2):
        try:
            values = [float(value) for value in line.split(",")]
        except ValueError:
            values = []
        is_row = names[0] == "epoch" and len(values) == len(names) and math.isfinite(values[0])
        rows.append((number, line, values if is_row else None))
    return names, rows


def _exact(value: int | float) -> str:
    """Enough digits to get the very same number back."""
    return repr(value)

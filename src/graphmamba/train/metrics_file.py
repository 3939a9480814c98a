"""`metrics.csv`: one row an epoch, whole rows only, whenever the run is killed."""

import csv
import errno
import io
import os
from collections.abc import Mapping
from pathlib import Path

from graphmamba.whole_files import cannot_write, write_text

Row = Mapping[str, int | float]


def append_row(path: Path, row: Row) -> None:
    """Add a row, and before the first one the names of the columns."""
    lines = [list(row)] if not path.exists() else []
    lines.append([_exact(value) for value in row.values()])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    try:
        # one write to the end of a file arrives whole when we are killed; a full disk cuts it short
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
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
    """Read all rows; one that was cut short is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]


def cut_rows(path: Path, epochs: int) -> None:
    """Keep the rows of the first epochs: those after a saved state are made again."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines[1:] if line.endswith("\n") and int(line.split(",")[0]) < epochs]
    if kept:
        write_text(path, "".join(lines[:1] + kept))
    else:
        path.unlink()


def _exact(value: int | float) -> str:
    """Enough digits to get the very same number back."""
    return repr(value)

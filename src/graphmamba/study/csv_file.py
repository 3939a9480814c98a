"""Rows as CSV files, which are either whole or not there."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphmamba.whole_files import write_text


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows that have the same columns; no row makes no file."""
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())

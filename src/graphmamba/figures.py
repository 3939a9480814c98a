"""Figures written to files (needs the extra `plots`)."""

from pathlib import Path
from typing import Any

from graphmamba.atomic import atomic_write
from graphmamba.errors import UserError

DOTS_PER_INCH = 160
_UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure that lays itself out; sizes in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise UserError("plots need matplotlib: pip install 'graphmamba[plots]'") from missing
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure whole or not at all; the same numbers make the same file."""
    from matplotlib import rc_context

    ending = path.suffix[1:].lower()
    if ending not in figure.canvas.get_supported_filetypes():
        raise UserError(f"plot must end in .png, .pdf or .svg, got '{path}'")

    def write(partial: Path) -> None:
        # without a date, and with names that are not drawn
        with rc_context({"svg.hashsalt": "graphmamba"}):
            figure.savefig(partial, format=ending, dpi=DOTS_PER_INCH, metadata=_UNDATED.get(ending))

    atomic_write(path, write)

"""Figures written to files (needs the extra `plots`)."""

from pathlib import Path
from typing import Any

from graphmamba.atomic import atomic_write
from graphmamba.errors import UserError


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure with automatic layout; sizes in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise UserError("plots need matplotlib: pip install 'graphmamba[plots]'") from missing
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, PDF or SVG; equal figures give equal bytes."""
    from matplotlib import rc_context

    ending = path.suffix[1:].lower()
    if ending not in figure.canvas.get_supported_filetypes():
        raise UserError(f"plot must end in .png, .pdf or .svg, got '{path}'")
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}

    def write(partial: Path) -> None:
        # no date, and a fixed salt for the names inside an SVG
        with rc_context({"svg.hashsalt": "graphmamba"}):
            figure.savefig(partial, format=ending, dpi=160, metadata=dates.get(ending))

    atomic_write(path, write)

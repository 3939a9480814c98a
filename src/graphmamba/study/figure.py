"""How the figures of the studies look (needs the extra `plots`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmamba.figures import write_figure

INK, QUIET, RULE = "#22272e", "#7a828c", "#e3e6ea"
COLOURS = ("#0b6e6e", "#d1495b", "#edae49", "#7a5195", "#3d7dca", "#8d99ae")
"""Told apart also by those who see fewer colours; the first is ours."""


def log_axes(panel: Any) -> None:
    """Make both axes logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    panel.set(xscale="log", yscale="log")
    panel.margins(0.12)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")


def save_figure(figure: Any, path: Path, endings: Sequence[str] = ("png", "svg")) -> None:
    """Write it as PNG and SVG, whole or not at all; the path comes without an ending."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(QUIET)
        panel.tick_params(colors=QUIET, labelsize=8, labelcolor=INK)
        panel.grid(
            visible=True,
            axis="both" if panel.get_xscale() == "log" else "y",
            color=RULE,
            linewidth=0.8,
        )
        panel.set_axisbelow(True)
    for ending in endings:
        write_figure(figure, path.with_suffix(f".{ending}"))

"""`metrics.csv` -> `curves.png`: losses, scores and learning rate over the epochs."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from graphmamba.errors import UserError
from graphmamba.figures import new_figure, write_figure
from graphmamba.training.metrics_file import read_rows

TRAIN, VALIDATION, TEST = "#4477aa", "#ee8866", "#228833"
"""Colours that also people who confuse red and green can tell apart."""
FAINT = "#9a9a9a"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw_curves(metrics: Path, path: Path, title: str, metric: str) -> None:
    """Draw the epochs of a run into a file (needs the extra `plots`).

    Args:
        metrics: The run's `metrics.csv`.
        path: The picture; its ending says which format.
        title: What stands above it.
        metric: The score that the best epoch was chosen by.
    """
    figure = new_figure(11.0, 3.6)
    rows = read_rows(metrics)
    if not rows:
        raise UserError(f"'{metrics}' must hold an epoch, got none")
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    epochs = [int(row["epoch"]) + 1 for row in rows]
    best = max((place for place, row in enumerate(rows) if row["is_best"]), default=None)
    _draw_losses(panels[0], epochs, rows)
    _draw_scores(panels[1], epochs, rows, metric, best)
    _draw_rates(panels[2], epochs, rows)
    for panel in panels:
        _tidy(panel)
        if best is not None:
            panel.axvline(epochs[best], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    write_figure(figure, path)


def _draw_losses(panel: Any, epochs: Sequence[int], rows: Sequence[dict[str, float]]) -> None:
    panel.set_title("loss", loc="left", fontsize=10)
    _line(panel, epochs, rows, "train_loss", "training", TRAIN)
    _line(panel, epochs, rows, "validation_loss", "validation", VALIDATION)
    panel.legend(frameon=False, fontsize=9)


def _draw_scores(
    panel: Any,
    epochs: Sequence[int],
    rows: Sequence[dict[str, float]],
    metric: str,
    best: int | None,
) -> None:
    panel.set_title(metric.replace("_", " "), loc="left", fontsize=10)
    _line(panel, epochs, rows, f"validation_{metric}", "validation", VALIDATION)
    _line(panel, epochs, rows, f"test_{metric}", "test", TEST)
    if best is not None:
        value = rows[best][f"test_{metric}"]
        panel.plot(
            epochs[best], value, "o", color=TEST, label=f"best epoch {epochs[best]}: {value:.4f}"
        )
    panel.legend(frameon=False, fontsize=9)


def _draw_rates(panel: Any, epochs: Sequence[int], rows: Sequence[dict[str, float]]) -> None:
    panel.set_title("learning rate", loc="left", fontsize=10)
    _line(panel, epochs, rows, "learning_rate", "", TRAIN)
    # an exponent above the axis would take the title's place
    panel.yaxis.set_major_formatter("{x:.3g}")
    panel.set_ylim(bottom=0)


def _line(
    panel: Any,
    epochs: Sequence[int],
    rows: Sequence[dict[str, float]],
    column: str,
    label: str,
    color: str,
) -> None:
    marker = "o" if len(epochs) == 1 else ""
    values = [row[column] for row in rows]
    panel.plot(epochs, values, color=color, label=label, linewidth=1.8, marker=marker)


def _tidy(panel: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel("epoch", fontsize=9)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.margins(x=0.03)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)

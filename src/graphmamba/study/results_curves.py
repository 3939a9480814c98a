"""Validation scores by epoch: a picture for each data set (needs the extra `plots`)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.figures import new_figure
from graphmamba.show.units import metric_title
from graphmamba.study.collected import Line
from graphmamba.study.figure import COLOURS, INK, QUIET, save_figure
from graphmamba.study.runs import StoredRun
from graphmamba.task.metrics import LOWER_IS_BETTER
from graphmamba.train.folder import RunFolder
from graphmamba.train.metrics_file import read_rows

STYLES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
"""Of lines; the next is taken when the colours are used up."""
SHOWN = 0.97
"""Share of the scores that a picture has room for; the worst, of the first epochs, are cut off."""

Curve = tuple[list[int], list[float]]


def draw_sets(lines: Sequence[Line], folder: Path) -> dict[str, str]:
    """Draw each data set into `BENCHMARK.svg`; returns the files as seen from beside the folder."""
    sets = dict.fromkeys(line.benchmark for line in lines)
    for benchmark in sets:
        draw_set([line for line in lines if line.benchmark == benchmark], folder / benchmark)
    return {benchmark: f"{folder.name}/{benchmark}.svg" for benchmark in sets}


def draw_set(lines: Sequence[Line], path: Path) -> None:
    """Draw all runs on one data set: a colour for each model, a dot where its best epoch is.

    Args:
        lines: Rows of the same data set.
        path: The picture, without its ending.
    """
    first = lines[0]
    figure = new_figure(7.2, 3.4)
    panel = figure.subplots()
    scores: list[float] = []
    models = list(dict.fromkeys(line.model for line in lines))
    for line in lines:
        number = models.index(line.model)
        for run in line.runs:
            scores += _draw_run(panel, run, line.model, number)
    panel.set_title(CATALOG[first.benchmark].title, fontsize=10, loc="left", color=INK)
    panel.set_xlabel("epoch", fontsize=9, color=QUIET)
    panel.set_ylabel(f"validation {metric_title(first.metric)}", fontsize=9, color=QUIET)
    panel.set_ylim(*limits(scores, first.metric in LOWER_IS_BETTER))
    panel.set_xlim(left=0)
    handles, labels = panel.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(unique.values(), unique, loc="outside right upper", frameon=False, fontsize=8.5)
    save_figure(figure, path, ("svg",))


def _draw_run(panel: Any, run: StoredRun, model: str, number: int) -> list[float]:
    epochs, values = _curve(run)
    colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
    panel.plot(
        epochs, values, color=colour, linestyle=style, linewidth=1.1, alpha=0.75, label=model
    )
    best = run.found.best_epoch + 1
    if best in epochs:
        panel.plot(best, values[epochs.index(best)], "o", color=colour, markersize=4)
    return values


def _curve(run: StoredRun) -> Curve:
    """Epochs, counted from 1, and validation scores of a run; those it was resumed after too."""
    path = RunFolder(run.found.folder).metrics
    rows = read_rows(path)
    column = f"validation_{run.found.metric}"
    if not rows or column not in rows[0]:
        raise UserError(f"'{path}' must have a row an epoch with '{column}'")
    return [int(row["epoch"]) + 1 for row in rows], [row[column] for row in rows]


def limits(scores: Sequence[float], is_lower_better: bool) -> tuple[float, float]:
    """Leave out the worst scores, so that the first epochs do not flatten all others."""
    ordered = sorted(score for score in scores if not math.isnan(score)) or [0.0]
    spare = int((1 - SHOWN) * len(ordered))
    low = ordered[0] if is_lower_better else ordered[spare]
    high = ordered[-1 - spare] if is_lower_better else ordered[-1]
    room = 0.04 * (high - low) or 0.01
    return low - room, high + room

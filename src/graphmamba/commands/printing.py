"""Output of the commands: lines, in the first process only, and tables of results."""

import math
import os
from collections.abc import Mapping, Sequence
from textwrap import fill

from graphmamba.reported import Score
from graphmamba.training.metrics import metric_title
from graphmamba.training.progress import bytes_of, time_of
from graphmamba.training.run_dir import (
    FoldsResult,
    RunResult,
    SeedsResult,
    deviation_of,
    mean_of,
)

NARROW = 15
"""Width of a mean with its standard deviation."""
LARGE = 1e6
"""Larger numbers are written with an exponent."""


def is_first_process() -> bool:
    """Whether this is the process of rank 0, or the only one."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def say(*lines: object) -> None:
    """Print lines or rich tables, in the first process only.

    Lines are printed without markup, which a path may look like.
    """
    from rich.console import Console

    if is_first_process():
        console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        for line in lines:
            console.print(line)


def results_table(result: RunResult | SeedsResult, published: Score | None = None) -> object:
    """Make a rich table of the scores of the best epochs.

    Args:
        result: One run, or runs with several seeds.
        published: What a paper reports for the test split.
    """
    runs = (result,) if isinstance(result, RunResult) else result.counted
    first = runs[0]
    scored = first.scores.get("test", {})
    names = ["loss", *(name for name in scored if name != "loss")]
    title = f"best epoch {', '.join(str(run.best_epoch + 1) for run in runs)}"
    title += f" · {first.parameters:,} parameters · {time_of(sum(run.seconds for run in runs))}"
    title += f" · {bytes_of(max(run.peak_memory for run in runs))}"
    if isinstance(result, FoldsResult):
        title += f" · {len(runs)} folds"
    elif len(runs) > 1:
        title += f" · seeds {', '.join(str(run.seed) for run in runs)}"
    if isinstance(result, SeedsResult):
        others = [run for run in result.runs if run not in runs]
        for run in others:
            why = "no score" if run.is_done else f"stopped by {run.stop_reason}"
            title += f" · without {name_of(run)}: {why}"
    columns = {
        split: [_over([run.scores[split].get(name, math.nan) for run in runs]) for name in names]
        for split in first.scores
    }
    if published is not None:
        told = [str(published) if name == first.metric else "" for name in names]
        columns[fill(published.source, NARROW)] = told
    return _scores_by_name(title, names, columns)


def name_of(run: RunResult) -> str:
    """Name of a run in a series: its seed, or its fold counted from 1."""
    kind, _, number = run.run_dir.name.partition("-")
    return f"fold {int(number) + 1}" if kind == "fold" else f"seed {run.seed}"


def scores_table(title: str, scores: Mapping[str, Mapping[str, float]]) -> object:
    """Make a rich table of the scores of some splits; one may lack some of the first one's."""
    names = list(next(iter(scores.values())))
    columns = {
        split: [_number(values[name]) if name in values else "" for name in names]
        for split, values in scores.items()
    }
    return _scores_by_name(title, names, columns)


def _scores_by_name(
    title: str, names: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> object:
    """One row per metric, since there may be too many for columns."""
    from graphmamba.studies.report import table

    rows = zip(map(metric_title, names), *columns.values(), strict=True)
    return table(title, ["", *columns], rows, words=1)


def _over(values: Sequence[float]) -> str:
    """One value, or mean and standard deviation of several; empty if there is none."""
    if any(math.isnan(value) for value in values):
        return ""
    mean = _number(mean_of(values))
    return mean if len(values) == 1 else f"{mean} ± {_number(deviation_of(values))}"


def _number(value: float) -> str:
    """Four decimals; four digits for a huge loss."""
    return f"{value:.4f}" if abs(value) < LARGE else f"{value:.4g}"

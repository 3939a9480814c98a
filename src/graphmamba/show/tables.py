"""Results as a table: per split, over seeds, beside what others report."""

import math
from collections.abc import Mapping, Sequence

from graphmamba.published import Score
from graphmamba.show.units import bytes_of, metric_title, time_of
from graphmamba.train.results import RunResult, SeedsResult, deviation_of, mean_of


def results_table(result: RunResult | SeedsResult, published: Score | None = None) -> object:
    """Make a rich table of the scores of the best epochs.

    Args:
        result: One run, or runs with several seeds.
        published: What a paper reports for the test split.
    """
    runs = (result,) if isinstance(result, RunResult) else result.runs
    first = runs[0]
    names = [name for name in first.scores.get("test", {}) if name != "loss"]
    columns = ["loss", *names]
    title = f"best epoch {_listed([run.best_epoch + 1 for run in runs])}"
    title += f" · {first.parameters:,} parameters · {time_of(sum(run.seconds for run in runs))}"
    title += f" · {bytes_of(max(run.peak_memory for run in runs))}"
    if len(runs) > 1:
        title += f" · seeds {_listed([run.seed for run in runs])}"
    rows = []
    for split in first.scores:
        cells = [_over([run.scores[split].get(name, math.nan) for run in runs]) for name in columns]
        rows.append([split, *cells])
    if published is not None:
        told = [str(published) if name == first.metric else "" for name in columns]
        rows.append([published.source, *told])
    return table(title, ["", *map(metric_title, columns)], rows)


def scores_table(title: str, scores: Mapping[str, Mapping[str, float]]) -> object:
    """Make a rich table of the scores of some splits."""
    names = list(next(iter(scores.values())))
    rows = [[split, *(f"{values[name]:.4f}" for name in names)] for split, values in scores.items()]
    return table(title, ["", *map(metric_title, names)], rows)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> object:
    """Make a rich table under its title: names to the left, numbers to the right."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left")
    for row in rows:
        made.add_row(*row)
    # a title of the table itself would be wrapped to its width
    return Group(Text(title, style="bold"), made)


def _over(values: Sequence[float]) -> str:
    """One value, or mean and standard deviation of several; nothing where there is none."""
    if any(math.isnan(value) for value in values):
        return ""
    mean = f"{mean_of(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ± {deviation_of(values):.4f}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))

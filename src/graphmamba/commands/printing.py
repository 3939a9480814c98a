"""What commands print: lines, in the first of several processes only, and tables of results."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from graphmamba.reported import Score
from graphmamba.training.console import bytes_of, metric_title, time_of
from graphmamba.training.results import (
    FoldsResult,
    RunResult,
    SeedsResult,
    deviation_of,
    mean_of,
)

GAP, FRAME = 3, 1
"""Characters that rich puts between columns, and once more around them."""
LARGE = 1e6
"""Numbers from here on are written with their power of ten."""


def is_first_process() -> bool:
    """Whether this process speaks for all: the one of rank 0, or the only one."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def say(*lines: object) -> None:
    """Print lines or rich tables, in the first process only.

    Lines are printed as they are: a path may well look like markup.
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
    names = [name for name in first.scores.get("test", {}) if name != "loss"]
    columns = ["loss", *names]
    title = f"best epoch {_listed([run.best_epoch + 1 for run in runs])}"
    title += f" · {first.parameters:,} parameters · {time_of(sum(run.seconds for run in runs))}"
    title += f" · {bytes_of(max(run.peak_memory for run in runs))}"
    if isinstance(result, FoldsResult):
        title += f" · {len(runs)} folds"
    elif len(runs) > 1:
        title += f" · seeds {_listed([run.seed for run in runs])}"
    if isinstance(result, SeedsResult):
        others = [run for run in result.runs if run not in runs]
        title += "".join(f" · without {name_of(run)}: {_why(run)}" for run in others)
    rows = []
    for split in first.scores:
        cells = [_over([run.scores[split].get(name, math.nan) for run in runs]) for name in columns]
        rows.append([split, *cells])
    if published is not None:
        told = [str(published) if name == first.metric else "" for name in columns]
        rows.append([published.source, *told])
    return table(title, ["", *map(metric_title, columns)], rows)


def name_of(run: RunResult) -> str:
    """What a run of a series is called: its seed, or its fold counted from 1."""
    kind, _, number = run.run_dir.name.partition("-")
    return f"fold {int(number) + 1}" if kind == "fold" else f"seed {run.seed}"


def scores_table(title: str, scores: Mapping[str, Mapping[str, float]]) -> object:
    """Make a rich table of the scores of some splits; a row may lack some of the first one's."""
    names = list(next(iter(scores.values())))
    rows = [
        [split, *(_number(values[name]) if name in values else "" for name in names)]
        for split, values in scores.items()
    ]
    return table(title, ["", *map(metric_title, names)], rows)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> object:
    """Make a rich table under its title: names to the left, numbers to the right.

    Where a row does not fit, rows and columns change places; columns that still do not fit follow
    below. So no number is cut or broken while there is room for one beside its name.
    """
    return _FittingTable(title, columns, rows)


@dataclass(frozen=True)
class _FittingTable:
    """A table that is laid out when it is printed, since only then the room is known."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, _console: object, options: Any) -> Iterable[object]:
        from rich.text import Text

        # a title of the table itself would be wrapped to its width
        yield Text(self.title, style="bold")
        lines, room = [self.columns, *self.rows], options.max_width
        if _width(map(_needed, zip(*lines, strict=True))) <= room:
            yield _drawn(lines, room)
        else:
            for place, part in enumerate(_parts(lines, room)):
                turned = zip(*part, strict=True)
                # what has no number is reported once
                yield _drawn([line for line in turned if place == 0 or any(line[1:])], room)


def _parts(columns: Sequence[Sequence[str]], room: int) -> list[list[Sequence[str]]]:
    """Spread columns over as few tables as have room for them, each beginning with the first."""
    names, *others = columns
    parts = [[names]]
    for column in others:
        if len(parts[-1]) > 1 and _width(map(_needed, [*parts[-1], column])) > room:
            parts.append([names])
        parts[-1].append(column)
    return parts


def _drawn(lines: Sequence[Sequence[str]], room: int) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    head, *rows = lines
    needed = [_needed(column) for column in zip(*lines, strict=True)]
    if _width(max(len(name), width) for name, width in zip(head, needed, strict=True)) > room:
        # left to rich, numbers would be wrapped as well
        head = [fill(name, max(width, 1)) for name, width in zip(head, needed, strict=True)]
    made = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(head):
        # names are a user's own words, no markup
        made.add_column(Text(name), justify="right" if place else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def _needed(column: Sequence[str]) -> int:
    """How wide a column is whose cells stay whole; its head may be wrapped between words."""
    head, *cells = column
    return max(map(len, [*head.split(), *cells]), default=0)


def _width(columns: Iterable[int]) -> int:
    return FRAME + sum(GAP + width for width in columns)


def _over(values: Sequence[float]) -> str:
    """One value, or mean and standard deviation of several; nothing where there is none."""
    if any(math.isnan(value) for value in values):
        return ""
    mean = _number(mean_of(values))
    return mean if len(values) == 1 else f"{mean} ± {_number(deviation_of(values))}"


def _number(value: float) -> str:
    """Four places; of a loss beyond all measure, four digits."""
    return f"{value:.4f}" if abs(value) < LARGE else f"{value:.4g}"


def _why(run: RunResult) -> str:
    return "no score" if run.is_done else f"stopped by {run.stop_reason}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))

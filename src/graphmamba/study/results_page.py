"""The page of results as Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphmamba.data.catalog import CATALOG
from graphmamba.published import GRAPH_MAMBA
from graphmamba.show.units import bytes_of, metric_title, time_of
from graphmamba.study.collected import SHORT, Collected, Line
from graphmamba.study.runs import StoredRun
from graphmamba.task.metrics import LOWER_IS_BETTER

MARK = "<!-- Written by hand from here on; `graphmamba study results` leaves it alone. -->"
FLAG, ABOVE = "▼", "▲"
COLUMNS = (
    *("data set", "metric", "model", "paper", "ours"),
    *("data", "seeds", "epochs", "parameters", "time of a run", "device"),
)
RUN_COLUMNS = (
    *("data set", "model", "seed", "validation", "test", "best epoch", "epochs", "ended"),
    *("time", "peak memory"),
)


def page(found: Collected, pictures: Mapping[str, str]) -> str:
    """Write the tables and what has to be known about them.

    Args:
        found: The runs.
        pictures: Where the curves of each data set are, seen from the page; may be empty.
    """
    lines = found.lines
    return "\n".join(
        [
            "# Results",
            "",
            *_intro(),
            "",
            *_table(COLUMNS, (_cells(line) for line in lines)),
            *_section("What differs in the data", _data_notes(lines)),
            *_section("What differs in the training", _training_notes(lines)),
            *_section("Rows that fall short", _short_rows(lines)),
            *_section("Rows above the paper", _rows_above(lines)),
            *_section("Unfinished runs", _unfinished(found)),
            *_section("Runs that find no number for some graphs", _unsound(lines)),
            *_section("Curves", _curves(lines, pictures)),
            *_section("Every run", _table(RUN_COLUMNS, _runs(lines))),
            "",
        ]
    )


def _intro() -> list[str]:
    return [
        "Test scores of the epoch with the best validation score, mean ± standard deviation over",
        "the seeds (divided by their number, as in the published tables). Epochs were chosen by",
        "validation alone; no test score had a part in any choice. `paper` has what is reported:",
        f"the {GRAPH_MAMBA} unless another is named (`graphmamba.published`). {FLAG} marks rows",
        f"more than {SHORT:g} published standard deviations worse than that, {ABOVE} rows as much",
        "better. Runs that were stopped before their last epoch stand in rows of their own, called",
        "unfinished.",
    ]


def _section(title: str, content: Iterable[str]) -> list[str]:
    """Put a heading over what there is; nothing has no heading."""
    body = list(content)
    return ["", f"## {title}", "", *body] if body else []


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def _cells(line: Line) -> list[str]:
    arrow = "↓" if line.metric in LOWER_IS_BETTER else "↑"
    found = [run.found for run in line.runs]
    return [
        CATALOG[line.benchmark].title,
        f"{metric_title(line.metric)} {arrow}",
        _model(line),
        _reported(line),
        score_over_seeds(line) + _mark(line),
        line.note.word,
        ", ".join(str(run.seed) for run in found),
        ", ".join(dict.fromkeys(run.epochs for run in line.runs)),
        f"{found[0].parameters:,}",
        time_of(sum(run.seconds for run in found) / len(found)),
        ", ".join(sorted({str(run.environment.get("device", "")) for run in found})),
    ]


def _mark(line: Line) -> str:
    if line.is_short:
        return f" {FLAG}"
    return f" {ABOVE}" if _is_above(line) else ""


def _is_above(line: Line) -> bool:
    return line.shortfall is not None and line.shortfall < -SHORT


def _model(line: Line) -> str:
    return line.model if line.is_done else f"{line.model}, unfinished"


def _reported(line: Line) -> str:
    if line.paper is None:
        return ""
    source = "" if line.paper.source == GRAPH_MAMBA else f", {line.paper.source}"
    return f"{line.paper}{source}" if line.note.is_comparable else f"({line.paper}{source})"


def score_over_seeds(line: Line) -> str:
    """Mean and standard deviation, where there is more than one run."""
    spread = f" ± {line.deviation:.4f}" if len(line.runs) > 1 else ""
    return f"{line.mean:.4f}{spread}"


def _data_notes(lines: Iterable[Line]) -> Iterator[str]:
    for line in {line.benchmark: line for line in lines}.values():
        yield f"- **{CATALOG[line.benchmark].title}**: {line.note.about}."


def _training_notes(lines: Iterable[Line]) -> Iterator[str]:
    """Say where a row was not trained by the config of its name, or not in 32 bits."""
    for line in lines:
        changes = line.changes
        told = ["no config of the package, see its `config.yaml`"] if changes is None else changes
        precisions = {run.options.precision for run in line.runs} - {"32-true"}
        told = [*told, *(f"precision {precision}" for precision in sorted(precisions))]
        if told:
            yield f"- {CATALOG[line.benchmark].title}, {_model(line)}: {'; '.join(told)}."


def _short_rows(lines: Iterable[Line]) -> Iterator[str]:
    for line in lines:
        if line.is_short:
            yield (
                f"- {CATALOG[line.benchmark].title}, {_model(line)}: {line.mean:.4f} against "
                f"{line.paper}, {line.shortfall:.1f} published standard deviations."
            )


def _rows_above(lines: Iterable[Line]) -> Iterator[str]:
    for line in lines:
        if _is_above(line) and line.shortfall is not None:
            yield (
                f"- {CATALOG[line.benchmark].title}, {_model(line)}: {line.mean:.4f} against "
                f"{line.paper}, {-line.shortfall:.1f} published standard deviations above; "
                f"data: {line.note.word}, seeds: {len(line.runs)}."
            )


def _unfinished(found: Collected) -> Iterator[str]:
    for line in found.lines:
        for run in line.runs if not line.is_done else ():
            where = f"{line.name}/seed-{run.found.seed}"
            yield f"- {where}: {run.epochs} epochs, ended by {run.found.ending}."
    for why in found.scoreless:
        yield f"- {why}; no score."


def _unsound(lines: Iterable[Line]) -> Iterator[str]:
    for line in lines:
        for run in line.runs:
            if not run.found.is_sound:
                yield f"- {line.name}/seed-{run.found.seed}, at epoch {run.found.best_epoch + 1}."


def _curves(lines: Iterable[Line], pictures: Mapping[str, str]) -> Iterator[str]:
    for benchmark in dict.fromkeys(line.benchmark for line in lines):
        if benchmark in pictures:
            title = CATALOG[benchmark].title
            yield f"![Validation scores on {title} by epoch]({pictures[benchmark]})"


def _runs(lines: Iterable[Line]) -> Iterator[list[str]]:
    for line in lines:
        for run in line.runs:
            yield [CATALOG[line.benchmark].title, _model(line), *_of_run(run)]


def _of_run(run: StoredRun) -> list[str]:
    found = run.found
    return [
        str(found.seed),
        f"{run.found.validation:.4f}",
        f"{found.test:.4f}",
        str(found.best_epoch + 1),
        run.epochs,
        found.ending,
        time_of(found.seconds),
        bytes_of(found.peak_memory),
    ]

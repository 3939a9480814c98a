"""`graphmamba study results`: runs on disk as a page, beside what the paper reports."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphmamba.config import config_names
from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.published import Score, published
from graphmamba.show.units import metric_title, time_of
from graphmamba.study.runs import read_run
from graphmamba.task.metrics import LOWER_IS_BETTER
from graphmamba.train.files import write_text
from graphmamba.train.results import RunResult, SeedsResult

MARK = "<!-- Written by hand from here on; `graphmamba study results` leaves it alone. -->"
SHORT = 2.0
"""A row is flagged where it misses the paper by more than so many published deviations."""
FLAG = "▼"


@dataclass(frozen=True)
class DataNote:
    """What differs from the data of the published numbers."""

    word: str
    """Stands in the table."""
    about: str
    """Stands below it."""


SUPERPIXELS = DataNote(
    "regenerated",
    "superpixels cut anew from the images, not the published files: node counts, values and edges "
    "differ a little",
)
DRAWN = DataNote(
    "drawn anew",
    "graphs drawn anew by the published recipe, which fixes no seed: other graphs, same law",
)
DATA_NOTES = {
    "peptides-func": DataNote(
        "official", "official molecules, labels and split; graphs built from SMILES"
    ),
    "peptides-struct": DataNote(
        "partial targets",
        "targets recomputed for a part of the peptides and standardised over these: not comparable "
        "with the published numbers, which therefore stand in parentheses",
    ),
    "pascalvoc-sp": SUPERPIXELS,
    "coco-sp": SUPERPIXELS,
    "pcqm-contact": DataNote(
        "official", "official molecules; wrong pairs drawn anew in every epoch, as published"
    ),
    "malnet-tiny": DataNote(
        "official", "official graphs and split, nodes without neighbours removed, as published"
    ),
    "cifar10": SUPERPIXELS,
    "mnist": SUPERPIXELS,
    "cluster": DRAWN,
    "pattern": DRAWN,
}
COLUMNS = (
    *("data set", "metric", "model", "paper", "ours"),
    *("data", "seeds", "parameters", "time of a run", "device"),
)
NOT_COMPARABLE = frozenset({"peptides-struct"})


@dataclass(frozen=True)
class Line:
    """One model on one data set, over its seeds."""

    benchmark: str
    model: str
    runs: tuple[RunResult, ...]

    @property
    def paper(self) -> Score | None:
        """What is reported for it."""
        return published(self.benchmark, self.model)

    @property
    def mean(self) -> float:
        """Mean test score."""
        return self._seeds.mean("test", self.runs[0].metric)

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds."""
        return self._seeds.deviation("test", self.runs[0].metric)

    @property
    def shortfall(self) -> float | None:
        """By how many published deviations it misses the paper; negative where it is better."""
        paper = self.paper
        if paper is None or paper.std is None or self.benchmark in NOT_COMPARABLE:
            return None
        sign = 1 if self.runs[0].metric in LOWER_IS_BETTER else -1
        return sign * (self.mean - paper.mean) / paper.std

    @property
    def is_short(self) -> bool:
        """Whether it misses the paper by more than the rule allows."""
        return self.shortfall is not None and self.shortfall > SHORT

    @property
    def _seeds(self) -> SeedsResult:
        return SeedsResult(Path(), self.runs)


def collect(folder: Path) -> list[Line]:
    """Read all finished runs under `BENCHMARK/MODEL/seed-N`, sorted as catalogue and configs are.

    Args:
        folder: Where they are.
    """
    if not folder.is_dir():
        raise UserError(f"folder must hold BENCHMARK/MODEL/seed-N/results.json, got '{folder}'")
    found = sorted(folder.glob("*/*/seed-*/results.json"), key=lambda path: _seed_of(path.parent))
    runs: dict[tuple[str, str], list[RunResult]] = {}
    for path in found:
        benchmark, model = path.parts[-4:-2]
        if benchmark not in CATALOG:
            raise UserError(f"'{path}' must lie in a folder named as a data set, got '{benchmark}'")
        run = read_run(path.parent)
        if run.is_done:
            runs.setdefault((benchmark, model), []).append(run)
    if not runs:
        raise UserError(f"folder must hold finished runs, and '{folder}' has none")
    order = {name: place for place, name in enumerate(_order())}
    names = sorted(runs, key=lambda pair: (order.get("/".join(pair), len(order)), pair))
    return [Line(*name, tuple(runs[name])) for name in names]


def _seed_of(folder: Path) -> int:
    number = folder.name.removeprefix("seed-")
    if not number.isdecimal():
        raise UserError(f"'{folder}' must be named seed-N, got '{folder.name}'")
    return int(number)


def _order() -> Iterable[str]:
    """Data sets as in the catalogue; in each, Graph-Mamba and what grew of it come first."""
    for benchmark in CATALOG:
        own = [name for name in config_names() if name.startswith(f"{benchmark}/")]
        yield from sorted(own, key=lambda name: not name.startswith(f"{benchmark}/graph-mamba"))


def page(lines: Sequence[Line]) -> str:
    """Write the tables and what has to be known about them as Markdown."""
    return "\n".join(
        [
            "# Results",
            "",
            "Test scores of the epoch with the best validation score, mean ± standard deviation",
            "over the seeds. Published numbers: see `graphmamba.published`. "
            f"{FLAG} marks rows more than",
            f"{SHORT:g} published standard deviations worse than the paper.",
            "",
            *_table(lines),
            "",
            "## What differs in the data",
            "",
            *_notes(lines),
            *_short_rows(lines),
            "",
        ]
    )


def _table(lines: Sequence[Line]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    for line in lines:
        first = line.runs[0]
        arrow = "↓" if first.metric in LOWER_IS_BETTER else "↑"
        cells = [
            CATALOG[line.benchmark].title,
            f"{metric_title(first.metric)} {arrow}",
            line.model,
            _reported(line),
            _found(line),
            DATA_NOTES[line.benchmark].word,
            ", ".join(str(run.seed) for run in line.runs),
            f"{first.parameters:,}",
            time_of(sum(run.seconds for run in line.runs) / len(line.runs)),
            ", ".join(sorted({str(run.environment.get("device", "")) for run in line.runs})),
        ]
        yield f"| {' | '.join(cells)} |"


def _reported(line: Line) -> str:
    if line.paper is None:
        return ""
    return f"({line.paper})" if line.benchmark in NOT_COMPARABLE else str(line.paper)


def _found(line: Line) -> str:
    spread = f" ± {line.deviation:.4f}" if len(line.runs) > 1 else ""
    return f"{line.mean:.4f}{spread}{f' {FLAG}' if line.is_short else ''}"


def _notes(lines: Iterable[Line]) -> Iterator[str]:
    for benchmark in dict.fromkeys(line.benchmark for line in lines):
        yield f"- **{CATALOG[benchmark].title}**: {DATA_NOTES[benchmark].about}."


def _short_rows(lines: Iterable[Line]) -> Iterator[str]:
    short = [line for line in lines if line.is_short]
    if short:
        yield from ("", "## Rows that fall short", "")
    for line in short:
        title = CATALOG[line.benchmark].title
        yield (
            f"- {title}, {line.model}: {line.mean:.4f} against {line.paper}, "
            f"{line.shortfall:.1f} published standard deviations."
        )


def results(folder: Path, out: Path = Path("docs/results.md")) -> None:
    """Collect finished runs into a page, beside the published numbers.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N/results.json for each run.
        out: Markdown file; what was written in it by hand, below its mark, is kept.
    """
    from rich.console import Console

    lines = collect(folder)
    if not out.parent.is_dir():
        raise UserError(f"out must be a file in a folder that exists, got '{out}'")
    before = out.read_text(encoding="utf-8") if out.exists() else ""
    by_hand = before.partition(MARK)[2] or "\n"
    write_text(out, f"{page(lines)}\n{MARK}{by_hand}")
    short = [line for line in lines if line.is_short]
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{len(lines)} rows of {sum(len(line.runs) for line in lines)} runs in {out}")
    for line in short:
        console.print(f"{FLAG} {line.benchmark}/{line.model}: {line.mean:.4f} against {line.paper}")

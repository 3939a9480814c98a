"""`graphmamba study ablation`: what each piece of a model is worth, over several seeds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from graphmamba.bench.tables import page
from graphmamba.checks import check_choice
from graphmamba.commands.printing import say
from graphmamba.commands.train import EXPERIMENT, RUN
from graphmamba.data.catalog import CATALOG
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.parse import numbers_in, words_among
from graphmamba.study.ablation_rows import EXCHANGED, ROWS, TABLES, TableName, row_experiments
from graphmamba.study.runs import finished_run
from graphmamba.train.experiment import Experiment
from graphmamba.train.fit import fit
from graphmamba.train.folder import RunFolder, read_config
from graphmamba.train.open_data import open_data
from graphmamba.train.options import RunOptions
from graphmamba.train.results import RunResult, SeedsResult

Given = Mapping[str, object]
Tell = Callable[[str], object]
Measured = Callable[["Table"], object]


@dataclass(frozen=True)
class Entry:
    """Runs of one row on one data set, those that are done."""

    benchmark: str
    row: str
    runs: tuple[RunResult, ...]

    @property
    def scores(self) -> list[float]:
        """Test score of each seed."""
        return [run.test for run in self.runs]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return SeedsResult(Path(), self.runs).mean("test", self.runs[0].metric)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, as in published tables; one run has none."""
        if len(self.runs) == 1:
            return None
        return SeedsResult(Path(), self.runs).deviation("test", self.runs[0].metric)

    @property
    def paper(self) -> float | None:
        """What the paper has for it."""
        return ROWS[self.row].paper.get(self.benchmark)


Table = Sequence[Entry]


@dataclass(frozen=True)
class Ablation:
    """All runs of the study; each has a folder of its own and is made once."""

    experiments: Mapping[tuple[str, str], Experiment]
    """What is trained, by data set and row."""
    seeds: Sequence[int]
    folder: Path
    options: RunOptions
    root: Path | None = None
    also: Path | None = None
    """Holds BENCHMARK/MODEL/seed-N; a run there of the same experiment is not made again."""
    is_complete: bool = True
    """Whether runs that are missing are made; else they are told and left out."""

    def run(self, tell: Tell, measured: Measured) -> Table:
        """Make the runs that are missing; `measured` gets the table whenever a run is done."""
        done: dict[tuple[str, str], Entry] = {}
        for (benchmark, row), result in self._results(tell):
            if not result.is_done:
                raise UserError(
                    f"stopped by {result.ending} in '{result.folder}': the same command goes on"
                )
            before = done.get((benchmark, row), Entry(benchmark, row, ()))
            done[benchmark, row] = replace(before, runs=(*before.runs, result))
            measured(self._table(done))
        return self._table(done)

    def _table(self, done: Mapping[tuple[str, str], Entry]) -> Table:
        """In the order of the experiments: the first seeds may be missing in some rows."""
        return [done[name] for name in self.experiments if name in done]

    def _results(self, tell: Tell) -> Iterator[tuple[tuple[str, str], RunResult]]:
        # seed by seed, so that a study that is stopped has all rows of the seeds that it has
        opened: dict[tuple[str, str], GraphStore] = {}
        for seed in self.seeds:
            for name, experiment in self.experiments.items():
                benchmark, row = name
                place = RunFolder(self.folder / benchmark / row / f"seed-{seed}")
                found = self._finished(place, experiment, seed)
                missing = "" if found or self.is_complete else ": no finished run"
                tell(f"{benchmark}, {ROWS[row].title}, seed {seed}{missing}")
                if found:
                    yield name, found
                if found or missing:
                    continue
                if name not in opened:
                    opened[name] = open_data(experiment, self.root)[1]
                options, goes_on = replace(self.options, seed=seed), place.config.exists()
                yield name, fit(experiment, opened[name], options, place.path, resume=goes_on)

    def _finished(self, place: RunFolder, experiment: Experiment, seed: int) -> RunResult | None:
        """Read a run that came to its end, from its own folder or from another's."""
        found = finished_run(place, experiment)
        if found or self.also is None:
            return found
        for config in sorted((self.also / experiment.benchmark).glob(f"*/seed-{seed}/config.yaml")):
            run = RunFolder(config.parent)
            if read_config(run.path).experiment == experiment and (found := run.done()):
                return found
        return None


def ablation(  # noqa: PLR0913
    folder: Path = Path("ablation"),
    *,
    benchmarks: str = "peptides-func,pascalvoc-sp",
    table: TableName = "order",
    rows: str = "all",
    seeds: str = "0,1,2",
    root: Path | None = None,
    also: Path | None = None,
    out: Path | None = None,
    report: bool = False,
    options: Annotated[Given, RUN] = {},  # noqa: B006
    overrides: Annotated[Given, EXPERIMENT] = {},  # noqa: B006
) -> None:
    """Train Graph-Mamba with a piece of it exchanged in each row, over several seeds.

    A study that was stopped goes on when the same command is given again.

    Args:
        folder: Where the runs go, BENCHMARK/ROW/seed-N.
        benchmarks: Data sets, with commas between.
        table: order has the paper's five orders; plus takes one piece at a time out of
            graph-mamba-plus, where a data set has it.
        rows: Some of the table's rows, with commas between.
        seeds: One run of each row for each seed.
        root: Where data sets are kept; $GRAPHMAMBA_ROOT or ~/.cache/graphmamba by default.
        also: Holds BENCHMARK/MODEL/seed-N, such as runs that are kept: one of the same experiment
            is read and not made again.
        out: Where the table and the figure go; the folder of the runs by default.
        report: Train nothing: tables and figure show the runs that are finished.
        options: See below.
        overrides: See below; they hold for all rows.
    """
    from rich.console import Console

    from graphmamba.study.ablation_report import ablation_table, write_ablation

    if "seed" in options:
        raise UserError(f"seeds must be given in the place of seed, got {options['seed']!r}")
    for name in overrides:
        if name == "benchmark" or name.startswith("own."):
            raise UserError(f"benchmarks must name the data sets, got {name}={overrides[name]!r}")
        if table == "order" and name.removeprefix("model.order.") in EXCHANGED:
            raise UserError(f"rows must name the orders, got {name}={overrides[name]!r}")
    sets = words_among(benchmarks, CATALOG, "benchmarks")
    check_choice("table", table, tuple(TABLES))
    known = tuple(TABLES[table].rows)
    chosen = known if rows == "all" else words_among(rows, known, "rows")
    experiments = {
        (name, row): experiment
        for name in sets
        for row, experiment in row_experiments(name, table, chosen, overrides).items()
    }
    missing = [
        f"'{row}' of {name}" for name in sets for row in chosen if (name, row) not in experiments
    ]
    if missing and rows != "all":
        raise UserError(f"rows must exchange something, and {missing[0]} is the same as another")
    study = Ablation(
        experiments,
        seeds=numbers_in(seeds, "seeds"),
        folder=folder,
        options=RunOptions.of(dict(options), "options"),
        root=root,
        also=also,
        is_complete=not report,
    )
    place = out or folder
    found = study.run(Console(stderr=True).print, lambda done: write_ablation(done, place))
    if not found:
        raise UserError(f"folder must hold finished runs for a report, and '{folder}' has none")
    for name in sets:
        page().print(ablation_table(name, found))
    say(f"Files: {place}")

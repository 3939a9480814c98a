"""All runs under a folder as rows: one model on one data set, over its seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphmamba.config import config_names, load_experiment
from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.published import Score, published
from graphmamba.study.data_notes import DATA_NOTES, DataNote
from graphmamba.study.runs import StoredRun, read_stored
from graphmamba.task.metrics import LOWER_IS_BETTER
from graphmamba.train.experiment import Experiment, changed_entries
from graphmamba.train.folder import RunFolder
from graphmamba.train.results import SeedsResult

SHORT = 2.0
"""A row is flagged where it misses the paper by more than so many published deviations."""


@dataclass(frozen=True)
class Line:
    """One model on one data set, over its seeds: those that are finished, or those that are not."""

    benchmark: str
    model: str
    runs: tuple[StoredRun, ...]
    """By seed; all of the same experiment."""
    is_done: bool

    @property
    def name(self) -> str:
        """Data set and model, as configs are named."""
        return f"{self.benchmark}/{self.model}"

    @property
    def experiment(self) -> Experiment:
        """What was trained."""
        return self.runs[0].experiment

    @property
    def metric(self) -> str:
        """What the best epochs were chosen by."""
        return self.runs[0].found.metric

    @property
    def note(self) -> DataNote:
        """What has to be known about its data."""
        return DATA_NOTES[self.benchmark]

    @property
    def paper(self) -> Score | None:
        """What is reported for it."""
        return published(self.benchmark, self.model)

    @property
    def mean(self) -> float:
        """Mean test score."""
        return self._seeds.mean("test", self.metric)

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds."""
        return self._seeds.deviation("test", self.metric)

    @property
    def shortfall(self) -> float | None:
        """By how many published deviations it misses the paper; negative where it is better."""
        paper = self.paper
        if paper is None or paper.std is None or not self.note.is_comparable:
            return None
        sign = 1 if self.metric in LOWER_IS_BETTER else -1
        return sign * (self.mean - paper.mean) / paper.std

    @property
    def is_short(self) -> bool:
        """Whether it misses the paper by more than the rule allows."""
        return self.shortfall is not None and self.shortfall > SHORT

    @property
    def changes(self) -> list[str] | None:
        """Entries that differ from the config of its name; None where there is no such config."""
        if self.name not in config_names():
            return None
        return changed_entries(load_experiment(self.name), self.experiment)

    @property
    def _seeds(self) -> SeedsResult:
        return SeedsResult(Path(), tuple(run.found for run in self.runs))


class Collected(NamedTuple):
    """What a folder holds."""

    lines: list[Line]
    """Runs that have a score, sorted as catalogue and configs are."""
    scoreless: list[str]
    """Runs that have none, each with the reason."""


def collect(folder: Path) -> Collected:
    """Read all runs under `BENCHMARK/MODEL/seed-N`.

    Runs that were stopped before their last epoch make a row of their own, since they are not
    what the others are.

    Args:
        folder: Where they are.
    """
    runs: dict[tuple[str, str, bool], list[StoredRun]] = {}
    scoreless: list[str] = []
    for place in run_folders(folder):
        benchmark, model, seed = place.parts[-3:]
        if not RunFolder(place).results.exists():
            scoreless.append(f"{benchmark}/{model}/{seed}: killed, it has no results.json")
            continue
        run = read_placed(place)
        if math.isnan(run.found.test):
            why = f"{run.epochs} epochs, ended by {run.found.ending}"
            scoreless.append(f"{benchmark}/{model}/{seed}: {why}")
        else:
            runs.setdefault((benchmark, model, run.found.is_done), []).append(run)
    if not runs:
        raise UserError(f"folder must hold runs with a score, and '{folder}' has none")
    models: dict[str, list[StoredRun]] = {}
    for (benchmark, model, _), own in runs.items():
        models.setdefault(f"{benchmark}/{model}", []).extend(own)
    for name, own in models.items():
        check_same(name, own)
    order = {name: place for place, name in enumerate(_order())}
    names = sorted(
        runs,
        key=lambda key: (order.get("/".join(key[:2]), len(order)), key[:2], not key[2]),
    )
    lines = [Line(name, model, tuple(runs[name, model, done]), done) for name, model, done in names]
    return Collected(lines, scoreless)


def run_folders(folder: Path) -> list[Path]:
    """Find the runs under `BENCHMARK/MODEL/seed-N`, by seed."""
    found = [path.parent for path in folder.glob("*/*/seed-*/config.yaml")]
    if not found:
        raise UserError(f"folder must hold BENCHMARK/MODEL/seed-N/config.yaml, got '{folder}'")
    return sorted(found, key=lambda path: (path.parts[:-1], _seed_of(path)))


def _seed_of(folder: Path) -> int:
    number = folder.name.removeprefix("seed-")
    if not number.isdecimal():
        raise UserError(f"'{folder}' must be named seed-N, got '{folder.name}'")
    return int(number)


def read_placed(place: Path) -> StoredRun:
    """Read the run in `BENCHMARK/MODEL/seed-N`; one that lies in another's place is refused."""
    benchmark = place.parts[-3]
    if benchmark not in CATALOG:
        raise UserError(f"'{place}' must lie in a folder named as a data set, got '{benchmark}'")
    run = read_stored(place)
    trained_on = "own graphs" if run.experiment.own else run.experiment.benchmark
    if trained_on != benchmark:
        raise UserError(f"'{place}' must hold a run on '{benchmark}', got one on {trained_on}")
    if run.found.seed != _seed_of(place):
        raise UserError(f"'{place}' must be named by its seed, which is {run.found.seed}")
    return run


def check_same(name: str, runs: Sequence[StoredRun]) -> None:
    """Refuse runs of one model that are of different experiments."""
    first = runs[0]
    for run in runs[1:]:
        changes = changed_entries(first.experiment, run.experiment)
        if changes:
            raise UserError(
                f"runs of {name} must be of the same experiment, and seed {run.found.seed} has "
                f"{changes[0]}: lay it in a folder of another name"
            )


def _order() -> Iterable[str]:
    """Data sets as in the catalogue; in each, Graph-Mamba and what grew of it come first."""
    for benchmark in CATALOG:
        own = [name for name in config_names() if name.startswith(f"{benchmark}/")]
        grown = f"{benchmark}/graph-mamba"
        # of two names, the one that the other begins with is first
        yield from sorted(own, key=lambda name: (not name.startswith(grown), name))

"""The folder of a run: what is in it, and how it begins and goes on."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphmamba.errors import UserError
from graphmamba.parse import convert, read_yaml
from graphmamba.training.distributed import Team
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.lock import FolderLock
from graphmamba.training.results import RunResult, SeedsResult, read_result
from graphmamba.whole_files import write_json, write_text

RUNS = Path("runs")
"""Where runs go that were given no folder."""
OPTIONS = "options"
"""Key of `config.yaml` under which it says how the experiment was run."""
SEEDS = "seeds"
"""Key of `config.yaml` under which a series of runs has its seeds."""


def new_folder(experiment: Experiment, team: Team) -> Path:
    """Name a folder for a run by its data set and the time; the same one in all processes."""
    name = Path(experiment.own.path).stem or "own" if experiment.own else experiment.benchmark
    moment = time.localtime(team.first_of(time.time()))
    return RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S', moment)}"


@dataclass(frozen=True)
class RunFolder:
    """The files of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """Experiment and options, all defaults included."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One row an epoch."""
        return self.path / "metrics.csv"

    @property
    def curves(self) -> Path:
        """A picture of the epochs, where there is matplotlib."""
        return self.path / "curves.png"

    @property
    def results(self) -> Path:
        """What the run found."""
        return self.path / "results.json"

    @property
    def best(self) -> Path:
        """Weights of the chosen epoch."""
        return self.path / "best.safetensors"

    @property
    def state(self) -> Path:
        """All that it takes to go on."""
        return self.path / "last" / "state.safetensors"

    @property
    def files(self) -> tuple[Path, ...]:
        """All that a run which goes well writes."""
        return self.config, self.metrics, self.curves, self.results, self.best, self.state

    def dump(self, step: int) -> Path:
        """State before a step that failed."""
        return self.path / f"failed-step-{step}" / "state.safetensors"

    @contextmanager
    def kept(
        self, team: Team, resume: bool, is_series: bool = False
    ) -> Iterator[Callable[[], None]]:
        """Keep the folder for one run, or series of runs; others are refused until it is left.

        Gives what refuses to go on once the folder is no longer there.

        Args:
            team: All processes of the run; each has to enter, and the first one has the lock.
            resume: Whether to go on with what the folder holds; or else it must hold no run.
            is_series: Whether it is the folder of several seeds.
        """
        with FolderLock(self.path) as lock:

            def take() -> None:
                if resume:
                    self._check_run(is_series)
                else:
                    self.begin()
                lock.take()
                # only now nobody else can begin one
                if not resume and any(each.exists() for each in self.files):
                    raise UserError(
                        f"folder must hold no run yet, got '{self.path}': resume it, "
                        "or name another"
                    )

            team.let_first(take)
            yield lambda: team.let_first(lock.check)

    def begin(self) -> None:
        """Make the folder, or refuse one that cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as mistake:
            raise UserError(f"folder must be writable, got '{self.path}': {mistake}") from mistake

    def _check_run(self, is_series: bool) -> None:
        """Refuse a folder that holds no run, or series of runs, to resume."""
        if not (self.config.exists() or self.state.exists()):
            raise UserError(f"folder must hold a run to resume, and '{self.config}' is missing")
        has_seeds = self.config.exists() and bool(read_config(self.path).seeds)
        if is_series and not has_seeds:
            raise UserError(
                f"seeds must be added to a series of them, and '{self.path}' holds a single run: "
                "resume it without seeds, or name another folder"
            )
        if has_seeds and not is_series:
            raise UserError(
                f"folder must hold a single run, and '{self.path}' holds a series of seeds: "
                "resume it with its seeds, or name the folder of one"
            )
        # the state is written before the first step: without it these would be overwritten
        written = [each.name for each in (self.results, self.best, self.metrics) if each.exists()]
        if not is_series and written and not self.state.exists():
            raise UserError(
                f"'{self.state}' is missing, so the run in '{self.path}' cannot be resumed; its "
                f"{', '.join(written)} stay as they are: start another run in a new folder"
            )

    def has_state(self) -> bool:
        """Whether there is something to go on with; a run that was killed too early has none."""
        return self.state.exists()

    def done(self) -> RunResult | None:
        """What the run found, if it came to its end."""
        found = read_result(self.results) if self.results.is_file() else None
        return found if found is not None and found.is_done else None

    def write_results(self, result: RunResult | SeedsResult) -> None:
        """Write what was found."""
        write_json(self.results, result.content())


def write_config(
    path: Path, experiment: Experiment, options: RunOptions, seeds: Sequence[int] = ()
) -> None:
    """Write all that a run follows from, so that `config.load_experiment` reads it again."""
    import yaml

    content = experiment.content() | {OPTIONS: options.content()}
    if seeds:
        content[SEEDS] = list(seeds)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_text(path, f"# {experiment.data.title}, all defaults included\n{text}")


class Started(NamedTuple):
    """What runs were started with."""

    experiment: Experiment
    options: RunOptions
    seeds: tuple[int, ...]
    """Of a series of runs; empty where there is one."""


def read_config(folder: Path | str) -> Started:
    """Read what a run, or a series of runs, was started with."""
    path = RunFolder(Path(folder)).config
    if not path.is_file():
        raise UserError(f"'{folder}' must be the folder of a run, and it has no {path.name}")
    try:
        content = read_yaml(path.read_text(encoding="utf-8"), f"'{path}'")
    except UnicodeDecodeError as mistake:
        raise UserError(f"'{path}' must be YAML: {mistake}") from mistake
    if not isinstance(content, dict) or OPTIONS not in content:
        raise UserError(f"'{path}' must hold an experiment and its {OPTIONS}")
    return started_of(content, str(path))


def started_of(content: Mapping[str, object], where: str) -> Started:
    """Take apart what `write_config` wrote; without options and seeds it is an experiment alone.

    Args:
        content: Of the file.
        where: What a message calls it.
    """
    entries = dict(content)
    given = entries.pop(OPTIONS, {})
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: {OPTIONS} must hold keys and values, got {given!r}")
    options = RunOptions.of(given, f"{where}: {OPTIONS}")
    seeds = convert(entries.pop(SEEDS, []), tuple[int, ...], f"{where}: {SEEDS}")
    assert isinstance(seeds, tuple)
    return Started(Experiment.of(entries, where), options, seeds)

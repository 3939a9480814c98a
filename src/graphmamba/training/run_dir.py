"""The folder of a run: what is in it, its lock, its table of epochs and their curves."""

import csv
import errno
import io
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from graphmamba.atomic import cannot_write, write_json, write_text
from graphmamba.errors import UserError
from graphmamba.figures import new_figure, write_figure
from graphmamba.parse import read_yaml
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.experiment import (
    FOLDS,
    OPTIONS,
    SEEDS,
    Experiment,
    RunConfig,
    RunOptions,
    parse_run_config,
)
from graphmamba.training.results import RunResult, SeedsResult, read_result

RUNS = Path("runs")
"""Where runs go that were given no folder."""


def new_run_dir(experiment: Experiment, team: ProcessGroup) -> Path:
    """Name a folder for a run by its data set and the time; the same one in all processes."""
    name = Path(experiment.data.path).stem or "own" if experiment.data else experiment.dataset
    moment = time.localtime(team.first_of(time.time()))
    return RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S', moment)}"


class RunDir:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        """Experiment and options, all defaults included."""
        self.metrics = path / "metrics.csv"
        """One row an epoch."""
        self.curves = path / "curves.png"
        """A picture of the epochs, where there is matplotlib."""
        self.results = path / "results.json"
        """What the run found."""
        self.best = path / "best.safetensors"
        """Weights of the chosen epoch."""
        self.state = path / "last" / "state.safetensors"
        """All that it takes to go on."""
        self.files = self.config, self.metrics, self.curves, self.results, self.best, self.state

    def dump(self, step: int) -> Path:
        """State before a step that failed."""
        return self.path / f"failed-step-{step}" / "state.safetensors"

    @contextmanager
    def kept(
        self, team: ProcessGroup, resume: bool, is_series: bool = False, folds: int = 0
    ) -> Iterator[Callable[[], None]]:
        """Keep the folder for one run, or series of runs; others are rejected until it is left.

        Gives what rejects to go on once the folder is no longer there.

        Args:
            team: All processes of the run; each has to enter, and the first one has the lock.
            resume: Whether to go on with what the folder holds; or else it must hold no run.
            is_series: Whether it is the folder of several seeds or folds.
            folds: How many folds these are; 0 for seeds.
        """
        with RunDirLock(self.path) as lock:

            def take() -> None:
                if resume:
                    self._check_run(is_series, folds)
                else:
                    self.begin()
                lock.take()
                # only now nobody else can begin one
                if not resume and any(each.exists() for each in self.files):
                    raise UserError(
                        f"run_dir must hold no run yet, got '{self.path}': resume it, "
                        "or name another"
                    )

            team.rank_zero_first(take)
            yield lambda: team.rank_zero_first(lock.check)

    def begin(self) -> None:
        """Make the folder, or reject one that cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run_dir must be writable, got '{self.path}': {error}") from error

    def _check_run(self, is_series: bool, folds: int) -> None:
        """Reject a folder that holds no run, or series of runs, to resume."""
        if not (self.config.exists() or self.state.exists()):
            raise UserError(f"run_dir must hold a run to resume, and '{self.config}' is missing")
        began = read_config(self.path) if self.config.exists() else None
        if began is not None and began.folds != folds:
            held, asked = (
                f"{count} folds" if count else "no folds" for count in (began.folds, folds)
            )
            raise UserError(
                f"run_dir must hold what is resumed, and '{self.path}' holds {held}, not {asked}"
            )
        has_seeds = began is not None and bool(began.seeds or began.folds)
        if is_series and not has_seeds:
            raise UserError(
                f"seeds must be added to a series of them, and '{self.path}' holds a single run: "
                "resume it without seeds, or name another folder"
            )
        if has_seeds and not is_series:
            raise UserError(
                f"run_dir must hold a single run, and '{self.path}' holds a series of seeds: "
                "resume it with its seeds, or name the folder of one"
            )
        # the state is written before the first step: without it these would be overwritten
        written = [each.name for each in (self.results, self.best, self.metrics) if each.exists()]
        if not is_series and written and not self.state.exists():
            raise UserError(
                f"'{self.state}' is missing, so the run in '{self.path}' cannot be resumed; its "
                f"{', '.join(written)} stay as they are: start another run in a new folder"
            )

    def done(self) -> RunResult | None:
        """What the run found, if it came to its end."""
        found = read_result(self.results) if self.results.is_file() else None
        return found if found is not None and found.is_done else None

    def write_results(self, result: RunResult | SeedsResult) -> None:
        """Write what was found."""
        write_json(self.results, result.content())


def write_config(
    path: Path,
    experiment: Experiment,
    options: RunOptions,
    seeds: Sequence[int] = (),
    folds: int = 0,
) -> None:
    """Write all that a run follows from, so that `load_experiment` reads it again."""
    import yaml

    content = experiment.content() | {OPTIONS: options.content()}
    if seeds:
        content[SEEDS] = list(seeds)
    if folds:
        content[FOLDS] = folds
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_text(path, f"# {experiment.dataset_info.title}, all defaults included\n{text}")


def read_config(run_dir: Path | str) -> RunConfig:
    """Read what a run, or a series of runs, was started with."""
    path = RunDir(Path(run_dir)).config
    if not path.is_file():
        raise UserError(f"'{run_dir}' must be the folder of a run, and it has no {path.name}")
    try:
        content = read_yaml(path.read_text(encoding="utf-8"), f"'{path}'")
    except UnicodeDecodeError as error:
        raise UserError(f"'{path}' must be YAML: {error}") from error
    if not isinstance(content, dict) or OPTIONS not in content:
        raise UserError(f"'{path}' must hold an experiment and its {OPTIONS}")
    return parse_run_config(content, str(path))


LOCK = ".lock"
"""Name of the file that is locked; it is there as long as a run is."""
HELD = (errno.EAGAIN, errno.EACCES)
"""What file systems answer where another process has the lock."""


class RunDirLock:
    """Once it is taken, keeps others from a folder until it is left.

    The system itself lets go of what a process held that was killed: a file that is left behind
    stops nobody.

    Args:
        run_dir: What is kept; it need not be there before the lock is taken.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder, self._path = run_dir, run_dir / LOCK
        self._handle: int | None = None

    def __enter__(self) -> "RunDirLock":
        return self

    def take(self) -> None:
        """Take the lock, or reject a folder that another run has."""
        while self._handle is None:
            handle = self._open()
            try:
                _lock(handle, self._folder)
                if self._is_named(handle):
                    self._handle = handle
            finally:
                if self._handle is None:
                    os.close(handle)

    def check(self) -> None:
        """Reject to go on in a folder that was removed, or that another one took the place of."""
        if self._handle is not None and not self._is_named(self._handle):
            raise UserError(
                f"run_dir must stay while a run writes to it, and '{self._folder}' was removed or "
                "replaced"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is None:
            return
        # another folder may have taken the place of ours, with a lock of its own
        with suppress(OSError):
            if self._is_named(self._handle):
                self._path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"run_dir must be writable, got '{self._folder}': {error}") from (error)

    def _is_named(self, handle: int) -> bool:
        """Whether the file is still in its place: who had it before may have removed it."""
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False


def _lock(handle: int, run_dir: Path) -> None:
    try:
        # not there on Windows
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, ImportError) as error:
        if isinstance(error, OSError) and error.errno in HELD:
            raise UserError(
                f"run_dir must not be in use, and another process trains in '{run_dir}': "
                "wait for its end, or name another folder"
            ) from error
        warnings.warn(
            f"'{run_dir}' lies where files cannot be locked ({error}): "
            "take care that no other process trains there",
            stacklevel=2,
        )


Row = Mapping[str, int | float]
WRITING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
"""A pipe that nobody reads is no place for rows, and would be waited for."""
Line = tuple[int, str, list[float] | None]
"""Number, text, and values where it is a row."""
SHOWN = 8
"""Damaged lines that a message names."""


def append_row(path: Path, row: Row) -> None:
    """Add a row, and before the first one the names of the columns."""
    lines = [list(row)] if not path.exists() else []
    # enough digits to get the very same numbers back
    lines.append([repr(value) for value in row.values()])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    try:
        # one write to the end of a file arrives whole when we are killed; a full disk cuts it short
        handle = os.open(path, WRITING, 0o666)
        try:
            wanted = text.getvalue().encode()
            if os.write(handle, wanted) < len(wanted):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot_write(path, error) from error


def read_rows(path: Path) -> list[dict[str, float]]:
    """Read all rows; one that was cut short is left out, and a damaged one rejected."""
    names, rows = _lines(path)
    for number, _, values in rows:
        if values is None:
            raise UserError(f"'{path}' must hold a number in each column, not so in line {number}")
    return [dict(zip(names, values, strict=True)) for _, _, values in rows if values is not None]


def cut_rows(path: Path, epochs: int) -> None:
    """Keep the rows of the first epochs: those after a saved state are made again."""
    if not path.is_file():
        return
    names, rows = _lines(path)
    kept, dropped, last = [",".join(names)], [], -1.0
    for number, line, values in rows:
        # of rows that have lost their place, none is known to be the right one
        if values is None or not last < values[0] or values[0] != int(values[0]):
            dropped.append(number)
        elif values[0] < epochs:
            last = values[0]
            kept.append(line)
    if dropped:
        told = ", ".join(map(str, dropped[:SHOWN])) + (", ..." if len(dropped) > SHOWN else "")
        warnings.warn(
            f"'{path}' is damaged: {len(dropped)} of its lines dropped ({told})", stacklevel=2
        )
    if len(kept) > 1:
        write_text(path, "\n".join(kept) + "\n")
    else:
        path.unlink()


def _lines(path: Path) -> tuple[list[str], list[Line]]:
    """Names of the columns, and all whole lines below, those that are no row without values."""
    if not path.is_file():
        return [], []
    # by newlines alone: a damaged line may hold whatever else `splitlines` parts lines at
    first, *others = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    names = first.split(",")
    rows: list[Line] = []
    for number, line in enumerate(others, 2):
        try:
            values = [float(value) for value in line.split(",")]
        except ValueError:
            values = []
        is_row = names[0] == "epoch" and len(values) == len(names) and math.isfinite(values[0])
        rows.append((number, line, values if is_row else None))
    return names, rows


TRAIN, VALIDATION, TEST = "#4477aa", "#ee8866", "#228833"
"""Colours that also people who confuse red and green can tell apart."""
FAINT = "#9a9a9a"
FAR = 100.0
"""Distances between quartiles from the median, beyond which a value leaves its axis."""


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
    # only now: `new_figure` says so where it is missing
    from matplotlib.ticker import MaxNLocator

    rows = read_rows(metrics)
    if not rows:
        raise UserError(f"'{metrics}' must hold an epoch, got none")
    losses, scores, rates = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    epochs = [int(row["epoch"]) + 1 for row in rows]
    marker = "o" if len(rows) == 1 else ""

    def draw(panel: Any, column: str, label: str, color: str) -> None:
        values = [row[column] for row in rows]
        panel.plot(epochs, values, color=color, label=label, linewidth=1.8, marker=marker)

    losses.set_title("loss", loc="left", fontsize=10)
    draw(losses, "train_loss", "training", TRAIN)
    draw(losses, "validation_loss", "validation", VALIDATION)
    scores.set_title(metric.replace("_", " "), loc="left", fontsize=10)
    draw(scores, f"validation_{metric}", "validation", VALIDATION)
    draw(scores, f"test_{metric}", "test", TEST)
    rates.set_title("learning rate", loc="left", fontsize=10)
    draw(rates, "learning_rate", "", TRAIN)
    # an exponent above the axis would take the title's place
    rates.yaxis.set_major_formatter("{x:.3g}")
    rates.set_ylim(bottom=0)
    best = max((place for place, row in enumerate(rows) if row["is_best"]), default=None)
    if best is not None:
        value = rows[best][f"test_{metric}"]
        told = f"best epoch {epochs[best]}: {value:.4f}"
        scores.plot(epochs[best], value, "o", color=TEST, label=told)
    shown = (("train_loss", "validation_loss"), (f"validation_{metric}", f"test_{metric}"))
    for panel, columns in zip((losses, scores), shown, strict=True):
        panel.legend(frameon=False, fontsize=9)
        _leave_out_explosions(panel, [row[column] for row in rows for column in columns])
    for panel in (losses, scores, rates):
        panel.set_xlabel(panel.get_xlabel() or "epoch", fontsize=9)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.margins(x=0.03)
        panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        if best is not None:
            panel.axvline(epochs[best], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    write_figure(figure, path)


def _leave_out_explosions(panel: Any, values: Sequence[float]) -> None:
    """Keep an axis to what can be compared, where a few values would make all others a line."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if not len(finite):
        return
    low, middle, high = np.quantile(finite, (0.25, 0.5, 0.75))
    reach = max(FAR * (high - low), abs(middle), 1.0)
    kept = finite[abs(finite - middle) <= reach]
    if beyond := len(finite) - len(kept):
        margin = 0.05 * (kept.max() - kept.min() or 1.0)
        panel.set_ylim(kept.min() - margin, kept.max() + margin)
        panel.set_xlabel(f"epoch ({beyond} value{'s' * (beyond != 1)} beyond the axis)")

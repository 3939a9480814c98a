"""The run directory: its files and lock, results, and the table of epochs."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

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
from graphmamba.training.metrics import LOWER_IS_BETTER

Scores = Mapping[str, float]
"""`loss`, and the metrics by their names."""
StopReason = Literal["finished", "early stopping", "max time", "signal", "interrupt"]
"""`interrupt` is Ctrl-C, `signal` is SIGTERM."""
Rank = tuple[bool, float, int]


def rank_of(scores: Mapping[str, Scores], metric: str, seed: int) -> Rank:
    """Sort runs by their validation score, the best first; the lower seed among equals.

    Weights with NaN outputs for some validation graphs come last.
    """
    value = scores.get("validation", {}).get(metric, math.nan)
    value = value if metric in LOWER_IS_BETTER else -value
    is_sound = not math.isnan(scores.get("validation", {}).get("loss", 0.0))
    return not is_sound, math.inf if math.isnan(value) else value, seed


@dataclass(frozen=True)
class RunResult:
    """One run of one seed."""

    run_dir: Path
    seed: int
    metric: str
    """Metric that selects the best epoch."""
    best_epoch: int
    """Counted from 0; -1 if there is none."""
    scores: Mapping[str, Scores]
    """Scores of `train` (loss only), `validation` and `test` in the best epoch."""
    epochs: int
    """Number of finished epochs."""
    stop_reason: StopReason
    """Why it ended; after `max time`, `signal` and `interrupt` it can be resumed."""
    parameters: int
    seconds: float
    """Wall time, including that before a resume."""
    peak_memory: int
    """Peak memory in bytes, of the GPU or of the process on a CPU."""
    environment: Mapping[str, object]
    """Versions, device and commit."""
    is_sampled: bool = False
    """Whether scores are from sampled neighbours, since the graph did not fit into memory."""

    @property
    def test(self) -> float:
        """Test score of the best epoch; NaN where there is none."""
        return self.scores.get("test", {}).get(self.metric, math.nan)

    @property
    def validation(self) -> float:
        """Validation score of the best epoch; NaN where there is none."""
        return self.scores.get("validation", {}).get(self.metric, math.nan)

    @property
    def is_sound(self) -> bool:
        """Whether no validation output is NaN, judged by the loss."""
        return not self.rank[0]

    @property
    def rank(self) -> Rank:
        """Sort key, the best run first; see `rank_of`."""
        return rank_of(self.scores, self.metric, self.seed)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to resume."""
        return self.stop_reason in ("finished", "early stopping")

    def content(self) -> dict[str, object]:
        """All entries as JSON values; NaN and infinity become null."""
        return asdict(self) | {
            "run_dir": str(self.run_dir),
            "scores": {split: json_numbers(scores) for split, scores in self.scores.items()},
            "environment": dict(self.environment),
        }


def read_result(path: Path) -> RunResult:
    """Read `results.json`; `run_dir` is the directory that it is in now."""
    needed = {field.name for field in fields(RunResult)} - {"is_sampled"}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known: dict[str, Any] = {name: content[name] for name in needed}
        known |= {"run_dir": path.parent, "scores": read_scores(known["scores"])}
        for name in ("seed", "best_epoch", "epochs", "parameters", "peak_memory", "seconds"):
            if type(known[name]) not in (int, float):
                raise ValueError(f"{name} is {known[name]!r}")
    except (OSError, LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"'{path}' must be the results of one run, in JSON: {error!r}") from error
    return RunResult(**known, is_sampled=bool(content.get("is_sampled", False)))


def read_scores(splits: Any) -> dict[str, dict[str, float]]:
    """Read scores from JSON, in which null stands for NaN."""
    return {
        split: {name: math.nan if each is None else float(each) for name, each in found.items()}
        for split, found in splits.items()
    }


@dataclass(frozen=True)
class SeedsResult:
    """Runs that differ in their seed only."""

    run_dir: Path
    runs: tuple[RunResult, ...]

    @property
    def best(self) -> RunResult:
        """The run with the best validation score."""
        return min(self.runs, key=lambda run: run.rank)

    @property
    def counted(self) -> tuple[RunResult, ...]:
        """Runs that are averaged: finished ones, or if there are none, all with scores."""
        scored = tuple(run for run in self.runs if run.scores)
        return tuple(run for run in scored if run.is_done) or scored

    def mean(self, split: str, name: str) -> float:
        """Mean over these runs."""
        return mean_of(self._values(split, name))

    def deviation(self, split: str, name: str) -> float:
        """Standard deviation over these runs."""
        return deviation_of(self._values(split, name))

    def content(self) -> dict[str, object]:
        """Mean and deviation of each score, then all runs, as JSON can write them."""
        counted = self.counted
        table = {
            split: {
                name: json_numbers(
                    {"mean": self.mean(split, name), "deviation": self.deviation(split, name)}
                )
                for name in scores
            }
            for split, scores in (counted[0].scores if counted else {}).items()
        }
        return {
            "metric": self.runs[0].metric,
            "seeds": [run.seed for run in self.runs],
            "counted": [run.seed for run in counted],
            "scores": table,
            "runs": [run.content() for run in self.runs],
        }

    def _values(self, split: str, name: str) -> Sequence[float]:
        values = [run.scores.get(split, {}).get(name, math.nan) for run in self.counted]
        return values or [math.nan]


@dataclass(frozen=True)
class FoldsResult(SeedsResult):
    """Runs of a cross-validation, each with another fold as its test set."""

    @property
    def predictions(self) -> Path:
        """CSV file with out-of-fold predictions: of each graph, by the model not trained on it."""
        return self.run_dir / "out_of_fold.csv"

    def content(self) -> dict[str, object]:
        """Mean and deviation of each score, then all runs, as JSON can write them."""
        content = super().content()
        del content["seeds"], content["counted"]
        return {"folds": len(self.runs)} | content


def mean_of(values: Sequence[float]) -> float:
    """Mean, rounded once."""
    return math.fsum(values) / len(values)


def deviation_of(values: Sequence[float]) -> float:
    """Population standard deviation, as in published tables."""
    mean = mean_of(values)
    return math.sqrt(mean_of([(value - mean) ** 2 for value in values]))


def json_numbers(scores: Scores) -> dict[str, float | None]:
    """Return scores as JSON values; null for NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}


def new_run_dir(experiment: Experiment, team: ProcessGroup) -> Path:
    """Name a run directory by data set and time, the same one in all processes."""
    name = Path(experiment.data.path).stem or "own" if experiment.data else experiment.dataset
    # the clocks of two machines differ
    now = float(team.gather(torch.tensor([time.time()], dtype=torch.float64))[0])
    moment = time.localtime(now)
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S', moment)}"


LOCK = ".lock"
"""The system releases the lock when the process ends, even if killed; the file stays."""


class RunDir:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        """Experiment and options, all defaults included."""
        self.metrics = path / "metrics.csv"
        """One row per epoch."""
        self.curves = path / "curves.png"
        """Plot of the epochs, if matplotlib is installed."""
        self.results = path / "results.json"
        """Results of the run."""
        self.best = path / "best.safetensors"
        """Weights of the best epoch."""
        self.state = path / "last" / "state.safetensors"
        """The checkpoint to resume from."""
        self.files = self.config, self.metrics, self.curves, self.results, self.best, self.state

    def dump(self, step: int) -> Path:
        """State before a step that failed."""
        return self.path / f"failed-step-{step}" / "state.safetensors"

    @contextmanager
    def kept(
        self, team: ProcessGroup, resume: bool, is_series: bool = False, folds: int = 0
    ) -> Iterator[None]:
        """Lock the directory for one run or series; others are rejected until exit.

        Args:
            team: All processes of the run; each has to enter, and the first one has the lock.
            resume: Whether to resume the run in the directory; otherwise there must be none.
            is_series: Whether it is the directory of several seeds or folds.
            folds: Number of folds; 0 for seeds.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / LOCK)

        def take() -> None:
            if resume:
                self._check_run(is_series, folds)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock.acquire(blocking=False)
            except Timeout as error:
                raise UserError(
                    f"run_dir must not be in use, and another process trains in '{self.path}': "
                    "wait for its end, or name another folder"
                ) from error
            except OSError as error:
                raise UserError(f"run_dir must be writable, got '{self.path}': {error}") from error
            # only now nobody else can begin one
            if not resume and any(each.exists() for each in self.files):
                raise UserError(
                    f"run_dir must hold no run yet, got '{self.path}': resume it, or name another"
                )

        try:
            team.rank_zero_first(take)
            yield
        finally:
            lock.release()

    def _check_run(self, is_series: bool, folds: int) -> None:
        """Reject a directory without the run or series to resume."""
        if not self.config.exists():
            raise UserError(f"run_dir must hold a run to resume, and '{self.config}' is missing")
        began = read_config(self.path)
        asked, held = (
            f"{count} folds" if count else "a series of seeds" if several else "a single run"
            for count, several in ((folds, is_series), (began.folds, bool(began.seeds)))
        )
        if asked != held:
            raise UserError(
                f"run_dir must hold {asked} to resume, and '{self.path}' holds {held}: "
                "resume it as it was started, or name another folder"
            )
        # the state is written before the first step: without it these would be overwritten
        written = [each.name for each in (self.results, self.best, self.metrics) if each.exists()]
        if not is_series and written and not self.state.exists():
            raise UserError(
                f"'{self.state}' is missing, so the run in '{self.path}' cannot be resumed; its "
                f"{', '.join(written)} stay as they are: start another run in a new folder"
            )

    def done(self) -> RunResult | None:
        """Results of the run, if it has finished."""
        found = read_result(self.results) if self.results.is_file() else None
        return found if found is not None and found.is_done else None

    def write_results(self, result: RunResult | SeedsResult) -> None:
        """Write `results.json`."""
        write_json(self.results, result.content())


def write_config(
    path: Path,
    experiment: Experiment,
    options: RunOptions,
    seeds: Sequence[int] = (),
    folds: int = 0,
) -> None:
    """Write experiment and options, to be read by `load_experiment`."""
    import yaml

    content = experiment.content() | {OPTIONS: options.content()}
    if seeds:
        content[SEEDS] = list(seeds)
    if folds:
        content[FOLDS] = folds
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_text(path, f"# {experiment.dataset_info.title}, all defaults included\n{text}")


def read_config(run_dir: Path | str) -> RunConfig:
    """Read experiment and options of a run or series."""
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


def append_row(path: Path, row: Mapping[str, int | float]) -> None:
    """Append a row to the table of epochs, after a header if it is the first one."""
    lines = [] if path.exists() else [",".join(row)]
    # enough digits to get the very same numbers back
    lines.append(",".join(map(repr, row.values())))
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error


def read_rows(path: Path) -> list[dict[str, float]]:
    """Read all rows; an incomplete last one, as after a full disk, is left out."""
    if not path.is_file():
        return []
    try:
        names, *rows = (line.split(",") for line in _whole_lines(path))
        return [dict(zip(names, map(float, row), strict=True)) for row in rows]
    except ValueError as error:
        raise UserError(
            f"'{path}' must hold a row of numbers for each epoch: {error}; a run goes on without "
            "it, and with a new one, once it is moved away"
        ) from error


def cut_rows(path: Path, epochs: int) -> None:
    """Keep the rows of the first epochs: later ones are written again after a resume."""
    if not path.exists():
        return
    if not path.is_file():
        # a pipe that nobody reads would be waited for
        raise UserError(f"'{path}' must be a file, and it is none")
    found = [row.get("epoch", math.nan) for row in read_rows(path)]
    if found != sorted({*found}):
        raise UserError(
            f"'{path}' must hold each epoch once, one after the other: move it away, and the run "
            "goes on with a new one"
        )
    kept = _whole_lines(path)[: 1 + sum(epoch < epochs for epoch in found)]
    if len(kept) > 1:
        write_text(path, "\n".join(kept) + "\n")
    else:
        path.unlink()


def _whole_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1] or [""]


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


TRAIN, VALIDATION, TEST = "#4477aa", "#ee8866", "#228833"
"""Colours that are safe for colour-blind readers."""
FAR = 100.0
"""Distances between quartiles from the median, beyond which a plot leaves a value out."""


def draw_curves(metrics: Path, path: Path, title: str, metric: str) -> None:
    """Plot the epochs of a run to a file (needs the extra `plots`).

    `metric` is the score that the best epoch was chosen by.
    """
    figure = new_figure(11.0, 3.6)
    import pandas as pd

    rows = pd.DataFrame(read_rows(metrics))
    columns = ["epoch", "is_best", "train_loss", f"validation_{metric}", f"test_{metric}"]
    if rows.empty or not {*columns} <= {*rows}:
        got = "none" if rows.empty else ", ".join(rows)
        raise UserError(f"'{metrics}' must hold an epoch, with {', '.join(columns)}, got {got}")
    rows["epoch"] += 1
    best = rows[rows["is_best"] == 1].tail(1)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    losses, scores, rates = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    for panel, heading, colors in (
        (losses, "loss", {"train_loss": TRAIN, "validation_loss": VALIDATION}),
        (scores, metric, {f"validation_{metric}": VALIDATION, f"test_{metric}": TEST}),
        (rates, "learning rate", {"learning_rate": TRAIN}),
    ):
        labels = [each.partition("_")[0].replace("train", "training") for each in colors]
        rows.plot(
            x="epoch", y=[*colors], color=[*colors.values()], ax=panel, marker=".", label=labels
        )
        values = rows[[*colors]].to_numpy().ravel()
        values = values[np.isfinite(values)]
        if len(values):
            # a few values that explode would make a line of all others
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
            is_near = abs(values - middle) <= max(FAR * (high - low), abs(middle), 1.0)
            if not is_near.all():
                panel.set_ylim(values[is_near].min(), values[is_near].max())
                panel.set_xlabel(f"epoch (beyond the axis: {(~is_near).sum()})")
        panel.set_title(heading.replace("_", " "), loc="left")
        panel.grid(axis="y", alpha=0.4)
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.get_major_locator().set_params(integer=True)
        for epoch in best["epoch"]:
            panel.axvline(epoch, color="#9a9a9a", linewidth=0.8, linestyle="--")
    for row in best.to_dict("records"):
        told = f"best epoch {row['epoch']:.0f}: {row[f'test_{metric}']:.4f}"
        scores.plot(row["epoch"], row[f"test_{metric}"], "o", color=TEST, label=told)
    losses.legend(frameon=False)
    scores.legend(frameon=False)
    rates.get_legend().remove()
    rates.set_ylim(bottom=0)
    write_figure(figure, path)

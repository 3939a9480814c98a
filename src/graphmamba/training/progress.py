"""Reporters of a run: printed lines, progress bars, TensorBoard, Weights & Biases."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, LoggerName, RunOptions
from graphmamba.training.metrics import metric_title
from graphmamba.training.run_dir import RunResult, Scores


@dataclass(frozen=True)
class StartRecord:
    """What is known before the first step."""

    experiment: Experiment
    options: RunOptions
    run_dir: Path
    metric: str
    """Metric that selects the best epoch."""
    device: str
    """Such as `cpu` or `cuda:0`."""
    processes: int
    parameters: int
    graphs: Mapping[str, int]
    """Graphs of `train`, `validation` and `test`; or nodes or links, where these are split."""
    epochs: int
    """Epochs of the whole run."""
    steps: int
    """Steps of an epoch."""
    first_epoch: int = 0
    """First epoch, counted from 0; more than 0 after a resume."""
    unit: str = "graphs"
    """What `graphs` counts."""
    notes: tuple[str, ...] = ()
    """Lines about the inferred task and the decisions for this run."""


@dataclass(frozen=True)
class StepRecord:
    """One step; reported when launched, on a GPU before it is finished."""

    epoch: int
    step: int
    """Steps of this epoch so far, this one included."""
    steps: int
    graphs: int
    """Graphs of this step, over all processes."""
    loss: Tensor
    """On the device: reading it waits for the GPU, so do it rarely."""


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: training, then evaluation of validation and test."""

    epoch: int
    """Counted from 0."""
    epochs: int
    """Epochs of the whole run."""
    learning_rate: float
    train_loss: float
    validation: Scores
    """`loss`, then the metrics, beginning with the one that selects the best epoch."""
    test: Scores
    is_best: bool
    """Whether no earlier epoch had a better validation score."""
    best_epoch: int
    """Best epoch so far, this one included; -1 if none has a score."""
    train_seconds: float
    seconds: float
    """Seconds of training and evaluation."""
    graphs_per_second: float
    """Graphs per second of training, over all processes."""
    memory: int
    """Peak memory so far in bytes, of the GPU or of the process on a CPU."""

    def row(self) -> dict[str, int | float]:
        """One row of `metrics.csv`."""
        return {
            "epoch": self.epoch,
            "learning_rate": self.learning_rate,
            "train_loss": self.train_loss,
            **{f"validation_{name}": value for name, value in self.validation.items()},
            **{f"test_{name}": value for name, value in self.test.items()},
            "is_best": int(self.is_best),
            "train_seconds": self.train_seconds,
            "seconds": self.seconds,
            "graphs_per_second": self.graphs_per_second,
            "memory": self.memory,
        }


class Reporter:
    """Receives the events of a run; subclass it. Of several processes only the first reports."""

    def on_start(self, start: StartRecord) -> None:
        """Called before the first step."""

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:
        """Called after each GPU kernel that is compiled before the first step."""

    def on_step(self, record: StepRecord) -> None:
        """Called after each step."""

    def on_evaluate(self, split: str, done: int, batches: int) -> None:
        """Called after each batch of an evaluation."""

    def on_epoch(self, record: EpochRecord) -> None:
        """Called after each epoch, trained and evaluated."""

    def on_end(self, result: RunResult) -> None:
        """Called at the end, unless the run fails."""


class TensorBoardLog(Reporter):
    """Writes each epoch to `tensorboard/` in the run directory."""

    def on_start(self, start: StartRecord) -> None:
        """Open the files; events after a resumed epoch are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        place = start.run_dir / "tensorboard"
        writer: Any = SummaryWriter  # it is not typed
        self._writer = writer(place, purge_step=start.first_epoch or None)

    def on_epoch(self, record: EpochRecord) -> None:
        """Write the values of an epoch."""
        for name, value in record.row().items():
            self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()

    def on_end(self, result: RunResult) -> None:  # noqa: ARG002
        """Close the files."""
        self._writer.close()


class WandbLog(Reporter):
    """Sends each epoch to Weights & Biases, configured by its own environment variables."""

    def on_start(self, start: StartRecord) -> None:
        """Open a run, or resume it."""
        import wandb

        config = {**start.experiment.content(), "options": start.options.content()}
        # the same folder is the same run, so that a resumed one goes on there too
        name = f"{start.run_dir.parent.name}-{start.run_dir.name}"
        self._run: Any = wandb.init(
            project="graphmamba", id=name, name=name, dir=start.run_dir, config=config,
            resume="allow",
        )  # fmt: skip

    def on_epoch(self, record: EpochRecord) -> None:
        """Send the values of an epoch."""
        self._run.log(record.row(), step=record.epoch)

    def on_end(self, result: RunResult) -> None:
        """Send the results."""
        for split, scores in result.scores.items():
            self._run.summary.update(
                {f"best_{split}_{name}": each for name, each in scores.items()}
            )
        self._run.finish()


LOGGERS: dict[LoggerName, tuple[type[Reporter], str]] = {
    "tensorboard": (TensorBoardLog, "logging"),
    "wandb": (WandbLog, "wandb"),
}
"""Reporters, and the extra that installs the library of the same name."""


@contextmanager
def following(
    reporter: Reporter | None, progress: bool, loggers: Sequence[LoggerName]
) -> Iterator[list[Reporter]]:
    """List the reporters of a run: bars on a terminal or lines, the user's, and loggers."""
    others = [reporter] if reporter else []
    for name in loggers:
        kind, extra = LOGGERS[name]
        if find_spec(name) is None:
            raise UserError(
                f"loggers: {name} is not installed; install it with "
                f"`pip install 'graphmamba[{extra}]'`"
            )
        others.append(kind())
    if not progress:
        yield others
    elif sys.stdout.isatty():
        bars = Bars()
        try:
            yield [bars, *others]
        finally:
            bars.close()
    else:
        yield [Lines(), *others]


class Lines(Reporter):
    """Prints a line at the start, after each epoch and at the end."""

    def on_start(self, start: StartRecord) -> None:
        """Print data set, model size and run directory."""
        self._metric = start.metric
        epochs = "epoch" if start.epochs == 1 else "epochs"
        is_resumed = 0 < start.first_epoch < start.epochs
        at = f" (from epoch {start.first_epoch + 1})" if is_resumed else ""
        graphs = " + ".join(f"{count:,}" for count in start.graphs.values())
        device = f"{start.device} x {start.processes}" if start.processes > 1 else start.device
        _write(
            f"{start.experiment.dataset_info.title}: {graphs} {start.unit}, "
            f"{start.parameters:,} parameters, {start.epochs} {epochs}{at} scored by "
            f"{metric_title(start.metric)}, {device}, seed {start.options.seed}, to {start.run_dir}"
        )
        for note in start.notes:
            _write(note)

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:
        """Print how long compiling took."""
        if done == kernels:
            _write(f"compiled {kernels} GPU kernels in {time_of(seconds)}")

    def on_epoch(self, record: EpochRecord) -> None:
        """Print loss, validation score and remaining time."""
        best = " (best)" if record.is_best else ""
        left = time_of((record.epochs - record.epoch - 1) * record.seconds)
        _write(
            f"epoch {record.epoch + 1}/{record.epochs}: loss {record.train_loss:.4f}, "
            f"validation {record.validation[self._metric]:.4f}{best}, "
            f"lr {record.learning_rate:.1e}, {time_of(record.seconds)}, {left} left, "
            f"{bytes_of(record.memory)}"
        )

    def on_end(self, result: RunResult) -> None:
        """Print the scores of the best epoch, and why an unfinished run stopped."""
        stopped = "" if result.is_done else f"stopped: {result.stop_reason}; "
        if result.best_epoch < 0:
            _write(f"{stopped}no epoch has a score")
            return
        scores = ", ".join(
            f"{split} {result.scores[split][result.metric]:.4f}" for split in ("validation", "test")
        )
        _write(f"{stopped}{scores} at epoch {result.best_epoch + 1}")


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


LOOK_EVERY = 0.5
"""Seconds between two reads of the loss, each of which waits for the GPU."""


class Bars(Lines):
    """Draws progress bars of epochs and steps below the lines."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._looked = 0.0
        # what is written meanwhile appears above the bars
        self._progress = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
            transient=True,
        )

    def on_start(self, start: StartRecord) -> None:
        """Print the first lines and open the bars."""
        super().on_start(start)
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        self._epochs = self._progress.add_task(
            "epochs", total=start.epochs, completed=start.first_epoch, told=""
        )
        self._steps = self._progress.add_task("training", total=start.steps, told="")
        self._progress.start()

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:
        """Move the bar."""
        super().on_compile(done, kernels, seconds)
        self._move("compiling", done, kernels, "GPU kernels")

    def on_step(self, record: StepRecord) -> None:
        """Move the bar; show the loss now and then."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY or record.step == record.steps:
            self._looked = now
            told = f"loss {float(record.loss):.4f}"
            self._move("training", record.step, record.steps, told)

    def on_evaluate(self, split: str, done: int, batches: int) -> None:
        """Move the bar."""
        self._move(split, done, batches)

    def on_epoch(self, record: EpochRecord) -> None:
        """Print a line and move the bar of epochs."""
        super().on_epoch(record)
        self._progress.update(self._epochs, completed=record.epoch + 1)

    def on_end(self, result: RunResult) -> None:
        """Close the bars and print the scores of the best epoch."""
        self.close()
        super().on_end(result)

    def close(self) -> None:
        """Remove the bars, also after a failure."""
        self._progress.stop()

    def _move(self, split: str, done: int, total: int, told: str = "") -> None:
        self._progress.update(
            self._steps, description=split, completed=done, total=total, told=told
        )


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Draw a progress bar, on a terminal only; yields a function that takes the progress."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


GIB, MIB = 1 << 30, 1 << 20
MINUTE, HOUR = 60, 3600


def bytes_of(count: int) -> str:
    """Format a size of memory."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def time_of(seconds: float) -> str:
    """Format a time in its two largest units."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"

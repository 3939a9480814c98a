"""Progress of a run: bars on a terminal, a line an epoch elsewhere, and readable units."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphmamba.training.experiment import LoggerName
from graphmamba.training.predict import Predictions
from graphmamba.training.reporter import (
    LOGGERS,
    EpochRecord,
    Reporter,
    StartRecord,
    StepRecord,
)
from graphmamba.training.results import RunResult

if TYPE_CHECKING:
    from rich.progress import Progress

LOOK_EVERY = 0.5
"""Seconds between two looks at the loss, which has to be waited for on a GPU."""
GIB, MIB = 1 << 30, 1 << 20
MINUTE, HOUR = 60, 3600
METRIC_TITLES = {
    "average_precision": "AP",
    "mean_absolute_error": "MAE",
    "macro_f1": "F1",
    "accuracy": "accuracy",
    "accuracy_sbm": "accuracy (mean of classes)",
    "micro_f1": "F1 (micro)",
    "weighted_f1": "F1 (weighted)",
    "mcc": "MCC",
    "roc_auc": "ROC-AUC",
    "log_loss": "log-loss",
    "rmse": "RMSE",
    "r2": "R2",
    "spearman": "Spearman",
    "mrr": "MRR",
}


@contextmanager
def following(
    reporter: Reporter | None, progress: bool, loggers: Sequence[LoggerName]
) -> Iterator[list[Reporter]]:
    """List who follows a run: bars on a terminal, lines elsewhere, the user's own, and loggers."""
    others = [*([reporter] if reporter else []), *(LOGGERS[name]() for name in loggers)]
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


class Bars(Reporter):
    """Draws progress, and leaves one line an epoch behind."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._progress: Progress | None = None
        self._looked, self._begun, self._graphs, self._epoch = 0.0, 0.0, 0, -1

    def on_start(self, start: StartRecord) -> None:
        """Say what is run and open the bars."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.text import Text

        self._start = start
        told = (
            f"  {_graphs(start)} · {start.parameters:,} parameters · {_device(start)} · "
            f"seed {start.options.seed} · {start.run_dir}\n"
            f"validation: {metric_title(start.metric)}"
            + "".join(f"\n{note}" for note in start.notes)
        )
        # custom graphs and folders have names that may look like markup
        self._console.print(Text.assemble((start.experiment.dataset_info.title, "bold"), told))
        self._progress = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            console=self._console,
            transient=True,
        )
        self._epochs = self._progress.add_task(
            "epochs", total=start.epochs, completed=start.first_epoch, told=""
        )
        self._steps = self._progress.add_task("training", total=start.steps, told="")
        self._progress.start()
        self._epoch = -1

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:  # noqa: ARG002
        """Move the bar."""
        assert self._progress is not None
        self._progress.update(
            self._steps, description="compiling", completed=done, total=kernels, told="GPU kernels"
        )

    def on_step(self, record: StepRecord) -> None:
        """Move the bar; the loss is looked at now and then."""
        assert self._progress is not None
        now = time.monotonic()
        if record.epoch != self._epoch:
            # when the epoch began is not known: the first step of it starts the clock
            self._epoch, self._graphs, self._begun = record.epoch, 0, now
        else:
            self._graphs += record.graphs
        if now - self._looked < LOOK_EVERY and record.step < record.steps:
            return
        self._looked = now
        told = f"loss {float(record.loss):.4f}"
        if self._graphs:
            told += f" · {self._graphs / max(now - self._begun, 1e-9):,.0f} graphs/s"
        self._progress.update(
            self._steps,
            description="training",
            completed=record.step,
            total=record.steps,
            told=told,
        )

    def on_evaluate(self, split: str, done: int, batches: int) -> None:
        """Move the bar."""
        assert self._progress is not None
        self._progress.update(
            self._steps, description=split, completed=done, total=batches, told=""
        )

    def on_epoch(self, record: EpochRecord) -> None:
        """Leave a line behind and say how long the rest will take."""
        assert self._progress is not None
        metric = self._start.metric
        left = time_of((record.epochs - record.epoch - 1) * record.seconds)
        mark = "[green]*[/green]" if record.is_best else " "
        width = len(str(record.epochs))
        self._progress.console.print(
            f"epoch {record.epoch + 1:>{width}}/{record.epochs} {mark} "
            f"loss {record.train_loss:.4f} · "
            f"validation [bold]{record.validation[metric]:.4f}[/bold] · "
            f"lr {record.learning_rate:.1e}",
            highlight=False,
        )
        best = "none" if record.best_epoch < 0 else f"epoch {record.best_epoch + 1}"
        told = f"{left} left · best {best} · {bytes_of(record.memory)}"
        self._progress.update(self._epochs, completed=record.epoch + 1, told=told)

    def on_end(self, result: RunResult) -> None:
        """Close the bars and give the scores of the best epoch."""
        self.close()
        self._console.print(_outcome(result), highlight=False)

    def close(self) -> None:
        """Take the bars away, also after a failure."""
        if self._progress is not None:
            self._progress.stop()


class Lines(Reporter):
    """Writes a line when a run starts, one after each epoch, and one at the end."""

    def on_start(self, start: StartRecord) -> None:
        """Say what is run, how large it is and where it writes."""
        self._metric, self._is_first = start.metric, True
        epochs = "epoch" if start.epochs == 1 else "epochs"
        is_resumed = 0 < start.first_epoch < start.epochs
        at = f" (from epoch {start.first_epoch + 1})" if is_resumed else ""
        _write(
            f"{start.experiment.dataset_info.title}: {_graphs(start)}, "
            f"{start.parameters:,} parameters, {start.epochs} {epochs}{at} scored by "
            f"{metric_title(start.metric)}, {_device(start)}, seed {start.options.seed}, "
            f"to {start.run_dir}"
        )
        for note in start.notes:
            _write(note)

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:
        """Write how long it took."""
        if done == kernels:
            _write(f"compiled {kernels} GPU kernels in {time_of(seconds)}")

    def on_epoch(self, record: EpochRecord) -> None:
        """Write the loss, the score of validation, and how long the rest will take."""
        left = f", {time_of((record.epochs - record.epoch - 1) * record.seconds)} left"
        if self._is_first:
            # it may have compiled kernels, so that others take less
            left, self._is_first = "", False
        best = " (best)" if record.is_best else ""
        _write(
            f"epoch {record.epoch + 1}/{record.epochs}: loss {record.train_loss:.4f}, "
            f"validation {record.validation[self._metric]:.4f}{best}, "
            f"lr {record.learning_rate:.1e}, {time_of(record.seconds)}{left}, "
            f"{bytes_of(record.memory)}"
        )

    def on_end(self, result: RunResult) -> None:
        """Write the scores of the best epoch."""
        _write(_outcome(result))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _graphs(start: StartRecord) -> str:
    return " + ".join(f"{count:,}" for count in start.graphs.values()) + f" {start.unit}"


def _device(start: StartRecord) -> str:
    return f"{start.device} x {start.processes}" if start.processes > 1 else start.device


def _outcome(result: RunResult) -> str:
    """The scores of the best epoch, and what stopped a run that is not done."""
    stopped = "" if result.is_done else f"stopped: {result.stop_reason}; "
    if result.best_epoch < 0:
        return f"{stopped}no epoch has a score"
    scores = [
        f"{split} {result.scores[split][result.metric]:.4f}"
        for split in ("validation", "test")
        if result.metric in result.scores.get(split, {})
    ]
    return f"{stopped}{', '.join(scores)} at epoch {result.best_epoch + 1}"


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Draw a bar on a terminal, and on nothing else.

    Args:
        title: What is going on.

    Yields:
        Whom to tell how much is done, and of how much.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def follow(parts: Iterable[Predictions], graphs: int) -> Iterator[Predictions]:
    """Hand predictions on and draw how many graphs are done.

    Args:
        parts: Predictions, batch after batch.
        graphs: How many graphs there are in all.
    """
    done = 0
    with bar("predicting") as tell:
        for part in parts:
            yield part
            done += len(part.graph.unique())
            tell(done, graphs)


def metric_title(name: str) -> str:
    """What a table calls a metric."""
    return METRIC_TITLES.get(name, name.replace("_", " "))


def bytes_of(count: int) -> str:
    """A size of memory."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def time_of(seconds: float) -> str:
    """A time in the two largest units that it has."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"

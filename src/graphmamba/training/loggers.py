"""Other programs that show the numbers of a run: TensorBoard, Weights & Biases."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from graphmamba.errors import UserError
from graphmamba.training.experiment import LoggerName
from graphmamba.training.reporter import EpochRecord, Reporter, Silent, StartRecord, StepRecord
from graphmamba.training.results import RunResult


class TensorBoardLog(Silent):
    """Writes all numbers of an epoch to `tensorboard/` in the run's folder."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as mistake:
            raise _missing("tensorboard", "logging") from mistake
        self._open: Callable[..., Any] = SummaryWriter
        self._writer: Any = None

    def on_start(self, start: StartRecord) -> None:
        """Open the files; what is after a resumed epoch is hidden."""
        place = start.folder / "tensorboard"
        self._writer = self._open(place, purge_step=start.first_epoch or None)

    def on_epoch(self, record: EpochRecord) -> None:
        """Write a row as points of curves."""
        for name, value in record.row().items():
            self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()

    def on_end(self, result: RunResult) -> None:  # noqa: ARG002
        """Close the files."""
        self._writer.close()


class WandbLog(Silent):
    """Sends all numbers of an epoch to Weights & Biases, whose own settings say where."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as mistake:
            raise _missing("wandb", "wandb") from mistake
        self._wandb: Any = wandb
        self._run: Any = None

    def on_start(self, start: StartRecord) -> None:
        """Open a run, or the same one again."""
        config = {**start.experiment.content(), "options": start.options.content()}
        # the same folder is the same run, so that a resumed one goes on there too
        name = f"{start.folder.parent.name}-{start.folder.name}"
        self._run = self._wandb.init(
            project="graphmamba", id=name, name=name, dir=start.folder, config=config,
            resume="allow",
        )  # fmt: skip

    def on_epoch(self, record: EpochRecord) -> None:
        """Send a row."""
        self._run.log(record.row(), step=record.epoch)

    def on_end(self, result: RunResult) -> None:
        """Send the result."""
        for split, scores in result.scores.items():
            self._run.summary.update(
                {f"best_{split}_{name}": each for name, each in scores.items()}
            )
        self._run.finish()


LOGGERS: dict[LoggerName, Callable[[], Reporter]] = {
    "tensorboard": TensorBoardLog,
    "wandb": WandbLog,
}


class Several:
    """Tells several reporters the same.

    Args:
        reporters: Who is told, one after another.
    """

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = tuple(reporters)

    def on_start(self, start: StartRecord) -> None:
        """Tell all of them."""
        for each in self._reporters:
            each.on_start(start)

    def on_step(self, record: StepRecord) -> None:
        """Tell all of them."""
        for each in self._reporters:
            each.on_step(record)

    def on_evaluate(self, split: str, done: int, batches: int) -> None:
        """Tell all of them."""
        for each in self._reporters:
            each.on_evaluate(split, done, batches)

    def on_epoch(self, record: EpochRecord) -> None:
        """Tell all of them."""
        for each in self._reporters:
            each.on_epoch(record)

    def on_checkpoint(self, path: Path) -> None:
        """Tell all of them."""
        for each in self._reporters:
            each.on_checkpoint(path)

    def on_end(self, result: RunResult) -> None:
        """Tell all of them."""
        for each in self._reporters:
            each.on_end(result)


def with_loggers(reporter: Reporter | None, names: Sequence[LoggerName]) -> Reporter:
    """Add loggers by their names to a reporter; a library that is missing is named."""
    loggers = [LOGGERS[name]() for name in names]
    found = [*([reporter] if reporter else []), *loggers]
    return found[0] if len(found) == 1 else Several(found)


def _missing(library: str, extra: str) -> UserError:
    return UserError(
        f"loggers: {library} is not installed; install it with `pip install 'graphmamba[{extra}]'`"
    )

"""What a run tells while it goes on, and who listens: reporters, TensorBoard, Weights & Biases."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, LoggerName, RunOptions
from graphmamba.training.results import RunResult, Scores


@dataclass(frozen=True)
class StartRecord:
    """What is known before the first step."""

    experiment: Experiment
    options: RunOptions
    run_dir: Path
    metric: str
    """What the best epoch is chosen by."""
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
    """Where the run goes on, counted from 0; more than 0 after a resume."""
    unit: str = "graphs"
    """What `graphs` counts."""
    notes: tuple[str, ...] = ()
    """Lines about the task as it was understood, and about what was decided for this run."""


@dataclass(frozen=True)
class StepRecord:
    """One step; reported once it was launched, which on a GPU is before it is done."""

    epoch: int
    step: int
    """Steps of this epoch that were made, this one included."""
    steps: int
    graphs: int
    """Graphs of this step, over all processes."""
    loss: Tensor
    """On the device: whoever reads it waits for the GPU, so do that rarely."""


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
    """`loss`, then the metrics; the first metric is the one models are chosen by."""
    test: Scores
    is_best: bool
    """Whether no earlier epoch had a better validation score."""
    best_epoch: int
    """Best epoch so far, this one included; -1 where none has a score."""
    train_seconds: float
    seconds: float
    """Training and evaluation."""
    graphs_per_second: float
    """Graphs trained on, over all processes."""
    memory: int
    """Peak so far in bytes: of the GPU, or of the process where there is none."""

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
    """Whoever follows a run; of several processes only the first one reports."""

    def on_start(self, start: StartRecord) -> None:
        """Hear of a run before its first step."""

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:
        """Hear of a GPU kernel that was compiled before the first step."""

    def on_step(self, record: StepRecord) -> None:
        """Hear of a step; called very often."""

    def on_evaluate(self, split: str, done: int, batches: int) -> None:
        """Hear of a batch of an evaluation; called very often."""

    def on_epoch(self, record: EpochRecord) -> None:
        """Hear of an epoch that was trained and evaluated."""

    def on_end(self, result: RunResult) -> None:
        """Hear of the end; not called where the run fails."""


class TensorBoardLog(Reporter):
    """Writes all numbers of an epoch to `tensorboard/` in the run's folder."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard", "logging") from error
        self._open: Callable[..., Any] = SummaryWriter
        self._writer: Any = None

    def on_start(self, start: StartRecord) -> None:
        """Open the files; what is after a resumed epoch is hidden."""
        place = start.run_dir / "tensorboard"
        self._writer = self._open(place, purge_step=start.first_epoch or None)

    def on_epoch(self, record: EpochRecord) -> None:
        """Write a row as points of curves."""
        for name, value in record.row().items():
            self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()

    def on_end(self, result: RunResult) -> None:  # noqa: ARG002
        """Close the files."""
        self._writer.close()


class WandbLog(Reporter):
    """Sends all numbers of an epoch to Weights & Biases, whose own settings say where."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb", "wandb") from error
        self._wandb: Any = wandb
        self._run: Any = None

    def on_start(self, start: StartRecord) -> None:
        """Open a run, or the same one again."""
        config = {**start.experiment.content(), "options": start.options.content()}
        # the same folder is the same run, so that a resumed one goes on there too
        name = f"{start.run_dir.parent.name}-{start.run_dir.name}"
        self._run = self._wandb.init(
            project="graphmamba", id=name, name=name, dir=start.run_dir, config=config,
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


def _missing(library: str, extra: str) -> UserError:
    return UserError(
        f"loggers: {library} is not installed; install it with `pip install 'graphmamba[{extra}]'`"
    )

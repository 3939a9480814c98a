"""Runs that are already on disk: what they were to do and what they found, read again."""

import math
from pathlib import Path
from typing import NamedTuple

from graphmamba.task.metrics import LOWER_IS_BETTER
from graphmamba.train.experiment import Experiment
from graphmamba.train.folder import RunFolder, read_config
from graphmamba.train.options import RunOptions
from graphmamba.train.results import RunResult, read_result


class StoredRun(NamedTuple):
    """What a run was started with, and what it found."""

    experiment: Experiment
    options: RunOptions
    found: RunResult

    @property
    def validation(self) -> float:
        """Validation score of the best epoch; NaN where there is none."""
        return self.found.scores.get("validation", {}).get(self.found.metric, math.nan)

    @property
    def rank(self) -> tuple[float, int]:
        """Sorts runs by their validation score, the best first; the lower seed among equals."""
        sign = 1 if self.found.metric in LOWER_IS_BETTER else -1
        value = sign * self.validation
        return math.inf if math.isnan(value) else value, self.found.seed

    @property
    def is_sound(self) -> bool:
        """Whether its weights find a number for every validation graph, as far as is known."""
        return not math.isnan(self.found.scores.get("validation", {}).get("loss", 0.0))

    @property
    def epochs(self) -> str:
        """Epochs that were made, and of how many where some are missing."""
        made, planned = self.found.epochs, self.experiment.recipe.epochs
        return str(made) if made == planned else f"{made} of {planned}"


def read_stored(folder: Path) -> StoredRun:
    """Read a run folder, or what is kept of one: `config.yaml` and `results.json`."""
    started = read_config(folder)
    return StoredRun(started.experiment, started.options, read_run(folder))


def read_run(folder: Path) -> RunResult:
    """Read what a run found; its folder is the one it is in now."""
    return read_result(RunFolder(folder).results)

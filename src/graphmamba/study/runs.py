"""Runs that are already on disk: what they were to do and what they found, read again."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from graphmamba.errors import UserError
from graphmamba.task.metrics import LOWER_IS_BETTER
from graphmamba.train.experiment import Experiment
from graphmamba.train.folder import RunFolder, read_config
from graphmamba.train.options import RunOptions
from graphmamba.train.results import RunResult


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
    path = RunFolder(folder).results
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as mistake:
        raise UserError(f"'{path}' must be JSON: {mistake}") from mistake
    needed = {field.name for field in fields(RunResult)}
    if not isinstance(content, dict) or needed - content.keys():
        raise UserError(f"'{path}' must be the results of one run, with {sorted(needed)}")
    known = {name: content[name] for name in needed}
    return RunResult(**known | {"folder": folder, "scores": _scores(known["scores"])})


def _scores(splits: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """JSON writes null for what is no number."""
    return {
        split: {name: math.nan if value is None else value for name, value in scores.items()}
        for split, scores in splits.items()
    }

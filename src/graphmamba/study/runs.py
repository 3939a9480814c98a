"""Runs that are already on disk: what they were to do and what they found, read again."""

from pathlib import Path
from typing import NamedTuple

from graphmamba.errors import UserError
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
    def epochs(self) -> str:
        """Epochs that were made, and of how many where some are missing."""
        made, planned = self.found.epochs, self.experiment.recipe.epochs
        return str(made) if made == planned else f"{made} of {planned}"


def read_stored(folder: Path) -> StoredRun:
    """Read a run folder, or what is kept of one: `config.yaml` and `results.json`."""
    started = read_config(folder)
    return StoredRun(started.experiment, started.options, read_run(folder))


def finished_run(place: RunFolder, experiment: Experiment) -> RunResult | None:
    """Read a run of this experiment that came to its end; a folder of another one's is refused."""
    if not place.config.exists():
        return None
    if read_config(place.path).experiment != experiment:
        raise UserError(
            f"folder must hold runs of the same experiment, and '{place.path}' holds another: "
            "name another folder"
        )
    return place.done()


def read_run(folder: Path) -> RunResult:
    """Read what a run found; its folder is the one it is in now."""
    return read_result(RunFolder(folder).results)

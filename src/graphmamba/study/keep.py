"""What is kept of runs for good: small text files, without weights or paths of a machine."""

from pathlib import Path

from graphmamba.errors import UserError
from graphmamba.study.collected import run_folders
from graphmamba.study.runs import read_run, read_stored
from graphmamba.train.experiment import changed_entries
from graphmamba.train.folder import RunFolder
from graphmamba.whole_files import write_json, write_text


def keep_runs(folder: Path, into: Path) -> list[Path]:
    """Copy `results.json`, `metrics.csv` and `config.yaml` of all runs; returns where they are now.

    A run that is kept already is replaced by a later state of it; an earlier one, or one of another
    experiment, is refused.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N for each run.
        into: Gets the same folders.
    """
    if folder.resolve() == into.resolve():
        raise UserError(f"keep must be another folder than that of the runs, got '{into}'")
    return [_keep(RunFolder(place), into) for place in run_folders(folder)]


def _keep(run: RunFolder, into: Path) -> Path:
    name = Path(*run.path.parts[-3:])
    kept = RunFolder(into / name)
    if kept.results.exists():
        _check_later(run, kept)
    for source, copy in ((run.config, kept.config), (run.metrics, kept.metrics)):
        if source.exists():
            write_text(copy, source.read_text(encoding="utf-8"))
    # last, since whoever finds results reads the config beside them
    if run.results.exists():
        found = read_run(run.path)
        # the folder that the run was made in means nothing elsewhere
        write_json(kept.results, {**found.content(), "folder": name.as_posix()})
    return kept.path


def _check_later(run: RunFolder, kept: RunFolder) -> None:
    """Refuse to lay something else over a run that has a result."""
    before = read_stored(kept.path)
    if not run.results.exists() or read_run(run.path).epochs < before.found.epochs:
        raise UserError(f"'{run.path}' must not be older than what is kept in '{kept.path}'")
    changes = changed_entries(before.experiment, read_stored(run.path).experiment)
    if changes:
        raise UserError(
            f"'{run.path}' must be of the experiment that is kept in '{kept.path}', and has "
            f"{changes[0]}"
        )

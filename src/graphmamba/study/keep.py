"""What is kept of runs for good: small text files, without weights or paths of a machine."""

from pathlib import Path

from graphmamba.errors import UserError
from graphmamba.study.collected import check_same, read_placed, run_folders
from graphmamba.study.runs import read_run, read_stored
from graphmamba.train.experiment import changed_entries
from graphmamba.train.folder import RunFolder
from graphmamba.whole_files import write_json, write_text


def keep_runs(folder: Path, into: Path) -> list[Path]:
    """Copy `results.json`, `metrics.csv` and `config.yaml` of all runs; returns where they are now.

    A run that is kept already is replaced by a later state of it; an earlier one, or one of another
    experiment, is refused, and then nothing has been copied.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N for each run.
        into: Gets the same folders.
    """
    if folder.resolve() == into.resolve():
        raise UserError(f"keep must be another folder than that of the runs, got '{into}'")
    runs = [RunFolder(place) for place in run_folders(folder)]
    for run in runs:
        _check(run, RunFolder(into / _name(run)))
    return [_keep(run, RunFolder(into / _name(run))) for run in runs]


def _name(run: RunFolder) -> Path:
    return Path(*run.path.parts[-3:])


def _check(run: RunFolder, kept: RunFolder) -> None:
    """Refuse a run that the page could not be made with, once it is kept."""
    if kept.results.exists():
        _check_later(run, kept)
    if not run.results.exists():
        return
    found = read_placed(run.path)
    for other in sorted(kept.path.parent.glob("seed-*")):
        if RunFolder(other).results.exists():
            check_same("/".join(_name(run).parts[:2]), [read_placed(other), found])


def _keep(run: RunFolder, kept: RunFolder) -> Path:
    for source, copy in ((run.config, kept.config), (run.metrics, kept.metrics)):
        if source.exists():
            write_text(copy, source.read_text(encoding="utf-8"))
    # last, since whoever finds results reads the config beside them
    if run.results.exists():
        found = read_run(run.path)
        # the folder that the run was made in means nothing elsewhere
        write_json(kept.results, {**found.content(), "folder": _name(run).as_posix()})
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

"""Several runs that differ by their seed alone."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from graphmamba.checks import check_is
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.console import following
from graphmamba.training.engine import start_fabric, team_of
from graphmamba.training.experiment import Experiment
from graphmamba.training.fit import check_folder, check_run, run_fit
from graphmamba.training.folder import RunFolder, new_folder, read_config, write_config
from graphmamba.training.open_data import open_data
from graphmamba.training.options import RunOptions
from graphmamba.training.reporter import Reporter
from graphmamba.training.results import SeedsResult


def fit_seeds(
    experiment: Experiment,
    store: GraphStore | None = None,
    options: RunOptions | None = None,
    folder: Path | str | None = None,
    reporter: Reporter | None = None,
    resume: bool = False,
    *,
    seeds: Sequence[int],
    progress: bool = False,
) -> SeedsResult:
    """Train once for each seed, in a sub-folder each; a run that is told to stop ends the series.

    Args:
        experiment: What is trained on what.
        store: As in `fit`.
        options: As in `fit`; their seed is not used, and `max_time` is that of all runs together.
        folder: Where sub-folders `seed-N` and the table of all seeds go.
        reporter: Who follows all runs.
        resume: Whether to go on with what is in `folder`: runs that are done stay as they are.
        seeds: One run each; to a series that is resumed they are added.
        progress: As in `fit`.

    Example:
        >>> result = fit_seeds(*take_graphs(graphs), seeds=[0, 1, 2])  # doctest: +SKIP
    """
    options = options or RunOptions()
    check_run(experiment, store, options)
    _check(seeds)
    check_folder(folder, resume)
    with following(reporter, progress, options.loggers) as listener:
        begin = time.monotonic()
        fabric = start_fabric(options)
        if store is None:
            experiment, store = open_data(experiment)
        team = team_of(fabric)
        whole = RunFolder(new_folder(experiment, team) if folder is None else Path(folder))
        with whole.kept(team, resume, is_series=True):
            if resume:
                seeds = [*dict.fromkeys([*read_config(whole.path).seeds, *seeds])]
            places = {seed: RunFolder(whole.path / f"seed-{seed}") for seed in seeds}
            # those that are done stay in the table, even where one before them stops
            found = {seed: place.done() for seed, place in places.items() if resume}
            for seed, place in places.items():
                left = max(options.max_time - (time.monotonic() - begin), 0.0)
                run = run_fit(
                    fabric,
                    experiment,
                    store,
                    replace(options, seed=seed, max_time=left),
                    place,
                    listener,
                    resume and place.config.exists(),
                    partial(write_config, whole.config, experiment, options, seeds),
                )
                found[seed] = run
                runs = (found.get(each) for each in seeds)
                result = SeedsResult(whole.path, tuple(each for each in runs if each is not None))
                if team.is_first:
                    whole.write_results(result)
                if not run.is_done:
                    break
    return result


def _check(seeds: Sequence[int]) -> None:
    check_is("seeds", seeds, Sequence, "a list, such as [0, 1, 2]")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds must be given, each once, got {list(seeds)}")
    for seed in seeds:
        RunOptions(seed=seed)

"""`graphmamba train`."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast, get_args

from graphmamba.checks import check_choice
from graphmamba.commands.arguments import Entries
from graphmamba.commands.printing import is_first_process, say
from graphmamba.data.catalog import CATALOG, MetricName
from graphmamba.data.custom.open import is_custom
from graphmamba.data.datasets.sources import open_benchmark
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.parse import convert, numbers_in
from graphmamba.reported import reported_for
from graphmamba.training.experiment import (
    DEFAULT,
    Experiment,
    RunConfig,
    RunOptions,
    config_names,
    experiment_of,
    load_run_config,
)
from graphmamba.training.run_dir import (
    FoldsResult,
    RunDir,
    RunResult,
    SeedsResult,
    StopReason,
    read_config,
)

Given = Mapping[str, object]
STATUS: Mapping[StopReason, int] = {"signal": 143, "interrupt": 130, "max time": 75}
"""Exit status of a run that can be resumed: 128 + signal, or EX_TEMPFAIL of `sysexits.h`."""
RUN = Entries(RunOptions, "options of the run")
EXPERIMENT = Entries(
    Experiment,
    "model, data and training (a preset changes these defaults: see --print_config)",
)


def train(
    name: str | None = None,
    seeds: str | None = None,
    folds: int | None = None,
    metric: str | None = None,
    size: str = "auto",
    run_dir: str | None = None,
    resume: str | None = None,
    data_dir: str | None = None,
    print_config: bool = False,
    options: Annotated[Given, RUN] = {},  # noqa: B006
    overrides: Annotated[Given, EXPERIMENT] = {},  # noqa: B006
) -> None:
    """Train a model, evaluate it after every epoch and keep the best epoch by validation.

    Args:
        name: A data set (Graph-Mamba on it), a preset DATASET/MODEL, a .yaml file (such as the
            config.yaml of a run), or your own graphs: a folder of tables or .graphml files, or a
            .csv, .csv.gz or .parquet of molecules, an .npz, a .zip of a TUDataset or a .graphml.
            Without it, a small generated data set that takes minutes on two CPU cores.
        seeds: Train once for each seed, such as 0,1,2, and print mean and standard deviation.
        folds: Cross-validate on your own graphs with so many folds: train once for each fold, which
            is the test set, print mean and standard deviation, and write all predictions to
            out_of_fold.csv.
        metric: Metric that selects the best epoch, such as macro_f1 or rmse; short for
            --train.metric. All metrics that fit the targets are reported.
        size: Size of the model that is chosen for your own graphs: auto, tiny, small, base, or 500k
            for at most 500,000 parameters. Options of model and training override the choice.
        run_dir: Output directory; default: a new one under runs/.
        resume: Directory of a stopped run to resume.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        print_config: Print the full configuration as YAML and exit.
        options: See below.
        overrides: See below.
    """
    if metric is not None:
        if overrides.get("train.metric", metric) != metric:
            raise UserError(
                f"--metric must be left out beside --train.metric, got {metric!r} and "
                f"{overrides['train.metric']!r}"
            )
        convert(metric, MetricName, "--metric")
        overrides = {**overrides, "train.metric": metric}
    if resume is not None and print_config:
        raise UserError(f"--print_config must not be given to --resume: see {resume}/config.yaml")
    if folds is not None and (seeds is not None or resume is not None):
        other = "--seeds" if seeds is not None else "--resume"
        raise UserError(f"--folds must be given without {other}, got both: {folds}")
    if resume is not None:
        _resume(Path(resume), name, seeds, run_dir, data_dir, options, overrides)
        return
    if seeds is not None and "seed" in options:
        raise UserError(
            f"--seeds must be given in the place of --seed, got both: {seeds} and {options['seed']}"
        )
    from graphmamba.training.defaults import Size
    from graphmamba.training.graphs import open_with_defaults

    chosen, store = choose(name, overrides), None
    experiment, data = chosen.experiment, chosen.experiment.data
    is_preset = name is not None and not is_custom(name)
    folds = chosen.folds if folds is None and seeds is None else folds or 0
    if data is not None and not is_preset:
        # by the graphs that the first fold trains on
        data = replace(data, folds=folds) if folds else data
        check_choice("--size", size, get_args(Size))
        given = {key: value for key, value in overrides.items() if not key.startswith("data.")}
        place = Path(data_dir) if data_dir else None
        experiment, store = open_with_defaults(data, cast("Size", size), given, place)
    elif size != "auto":
        raise UserError(f"--size must be given to custom graphs, got it for {name or DEFAULT}")
    if print_config:
        sys.stdout.write(experiment.to_yaml())
        return
    # the file of a run says how it was run, and whoever types something else means it
    run = RunOptions.of(chosen.options.content() | dict(options), "options")
    numbers = numbers_in(seeds, "seeds") if seeds is not None else [*chosen.seeds]
    numbers = [] if "seed" in options else numbers
    _train(experiment, run, numbers, folds, run_dir, data_dir, is_resumed=False, store=store)


def choose(name: str | None, overrides: Given) -> RunConfig:
    """Find the experiment that the first argument and the options name, and its run options."""
    given = dict(overrides)
    is_known = name is None or name in CATALOG or name in config_names()
    if name is not None and not is_known and is_custom(name):
        if given.setdefault("data.path", name) != name:
            raise UserError(
                f"data.path must be left out beside '{name}', got {given['data.path']!r}"
            )
        name = None
    if "data.path" in given:
        # those of a file are of the set that custom graphs take the place of
        given.setdefault("split_sizes", None)
    if name is None and "data.path" in given:
        return RunConfig(experiment_of(given), RunOptions(), ())
    return load_run_config(name or DEFAULT, given)


def _resume(
    run: Path,
    name: str | None,
    seeds: str | None,
    run_dir: str | None,
    data_dir: str | None,
    options: Given,
    overrides: Given,
) -> None:
    if name is not None or run_dir is not None or overrides:
        what = name or run_dir or f"--{next(iter(overrides))}"
        raise UserError(f"--resume goes on with what '{run}' holds, and must not be given '{what}'")
    began = read_config(run)
    changed = RunOptions.of(began.options.content() | dict(options), "options")
    numbers = [*began.seeds] if seeds is None else numbers_in(seeds, "seeds")
    if numbers and "seed" in options:
        raise UserError(f"seeds must be added by --seeds to a series, got --seed {options['seed']}")
    if began.folds and numbers:
        raise UserError(f"--seeds must be left out for '{run}', which holds folds, got {seeds}")
    _train(began.experiment, changed, numbers, began.folds, str(run), data_dir, is_resumed=True)


def _train(
    experiment: Experiment,
    options: RunOptions,
    seeds: list[int],
    folds: int,
    run_dir: str | None,
    data_dir: str | None,
    is_resumed: bool,
    store: GraphStore | None = None,
) -> None:
    from graphmamba.training.fit import fit, fit_folds, fit_seeds
    from graphmamba.training.graphs import open_data

    if data_dir is not None and store is None and not folds:
        experiment, store = open_data(experiment, Path(data_dir))
    where = run_dir, None, is_resumed
    result: RunResult | SeedsResult
    if folds:
        place = Path(data_dir) if data_dir else None
        result = fit_folds(
            experiment, None, options, *where, folds=folds, progress=True, data_dir=place
        )
    elif seeds:
        result = fit_seeds(experiment, store, options, *where, seeds=seeds, progress=True)
    else:
        result = fit(experiment, store, options, *where, progress=True)
    if is_first_process():
        _conclude(experiment, result, Path(data_dir) if data_dir else None)
    for run in (result,) if isinstance(result, RunResult) else result.runs:
        if not run.is_done:
            sys.exit(STATUS[run.stop_reason])


def _conclude(
    experiment: Experiment, result: RunResult | SeedsResult, data_dir: Path | None
) -> None:
    """Print the table, the files and the next command."""
    from graphmamba.commands.printing import name_of, results_table

    runs, best = (
        ((result,), result) if isinstance(result, RunResult) else (result.runs, result.best)
    )
    run_dir = shlex.quote(str(result.run_dir))  # its name may hold spaces
    if best.best_epoch < 0 and best.epochs:
        say(f"no epoch has a number for the {best.metric} of validation: no weights were kept")
        return
    if best.best_epoch < 0:
        say(f"no epoch was finished; go on with: graphmamba train --resume {run_dir}")
        return
    published = reported_for(experiment)
    if published is not None:
        found, whole = (
            len(open_benchmark(experiment.dataset, data_dir)),
            experiment.dataset_info.graphs,
        )
        if found != whole:
            # scores of a part say nothing beside those of the whole set
            told = f"{published.source} has {published} on {whole:,} graphs"
            say(f"{told}; not comparable with {found:,} here")
            published = None
    say(results_table(result, published))
    files = RunDir(best.run_dir)
    say(f"best weights  {files.best}")
    if files.curves.exists():
        say(f"curves        {files.curves}")
    if isinstance(result, FoldsResult) and result.predictions.exists():
        say(f"out of fold   {result.predictions}")
    optim, train = experiment.optim, experiment.train
    in_epochs = optim.schedule == "cosine" and not optim.warmup_steps
    if in_epochs and train.epochs <= optim.warmup:
        # what makes of a short trial one that hardly learns
        say(f"note          optim.warmup is {optim.warmup} epochs: {train.epochs} do not end it")
    for run in runs:
        if run.stop_reason != "finished":
            whose = "" if run is result else f"{name_of(run)} "
            told = f"{run.epochs} of {train.epochs} epochs ({run.stop_reason})"
            say(f"stopped       {whose}after {told}")
    if not all(run.is_done for run in runs):
        say(f"go on with    graphmamba train --resume {run_dir}")
    graphs = " --input GRAPHS" if experiment.data else ""
    words = f"{shlex.quote(str(best.run_dir))}{graphs} --output predictions.csv"
    say(f"predict with  graphmamba predict {words}")

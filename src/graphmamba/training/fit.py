"""`fit`, `fit_seeds` and `fit_folds`: from an experiment to a trained model."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

from graphmamba.checks import check_is
from graphmamba.data.custom.networkx import Graphs, networkx_graphs
from graphmamba.data.custom.options import DataOptions
from graphmamba.data.custom.pyg import list_of
from graphmamba.data.neighbor_sampling import NeighbourStore
from graphmamba.data.sampler import BatchSampler
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import LINKS
from graphmamba.environment import resolve_device
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import sync_norms
from graphmamba.ops.backends import choose_backend
from graphmamba.training.checkpoint import (
    Progress,
    RunState,
    own_generators,
    process_seed,
    seed_all,
)
from graphmamba.training.compile import decided, is_captured
from graphmamba.training.defaults import Size
from graphmamba.training.distributed import (
    ProcessGroup,
    allow_tf32,
    start_processes,
)
from graphmamba.training.ema import MovingAverage
from graphmamba.training.evaluate import labels_per_graph
from graphmamba.training.experiment import (
    Experiment,
    OptimConfig,
    OptimizerName,
    RunOptions,
    load_experiment,
)
from graphmamba.training.graphs import identity_of, in_parts, names_in, open_data, take_graphs
from graphmamba.training.loop import Loop
from graphmamba.training.predict import Predictions, load, write_predictions
from graphmamba.training.progress import Reporter, StartRecord, following
from graphmamba.training.run_dir import (
    FoldsResult,
    RunDir,
    RunResult,
    SeedsResult,
    can_draw,
    cut_rows,
    draw_curves,
    new_run_dir,
    read_config,
    write_config,
)
from graphmamba.training.schedule import Schedule
from graphmamba.training.step import CapturedStep, TrainStep
from graphmamba.training.stop import NonFiniteCheck, StopSignals
from graphmamba.training.task_summary import understood


def fit(
    experiment: Experiment | str | Path | None = None,
    graphs: Graphs | GraphStore | None = None,
    options: RunOptions | None = None,
    run_dir: Path | str | None = None,
    reporter: Reporter | None = None,
    resume: bool = False,
    *,
    data: DataOptions | None = None,
    size: Size = "auto",
    progress: bool = True,
) -> RunResult:
    """Train a model, evaluate after every epoch and keep the best epoch.

    Args:
        experiment: Model and training: an `Experiment`, the name of a preset such as `cluster` or
            `cluster/gin`, or a YAML file; None chooses model and training by the data.
        graphs: Your graphs as PyG `Data` with `x`, `edge_index`, `y`, optionally `edge_attr` and
            `split`. None for the data set of the experiment.
        options: Seed, device, when to stop; None for the defaults.
        run_dir: Output directory; None for a new one under `runs`.
        reporter: Receives every step and epoch; None for nobody.
        resume: Whether to resume the run in `run_dir`.
        data: Task of the labels of `graphs`, and how to split them.
        size: Size of the chosen model if no experiment is given: `auto`, `tiny`, `small`, `base`,
            or `500k` for at most 500,000 parameters.
        progress: Whether to show progress: bars on a terminal, otherwise a line per epoch.

    Example:
        >>> fit("pattern", options=RunOptions(seed=1))  # doctest: +SKIP
        >>> fit("peptides-func", graphs, run_dir="runs/mine")  # doctest: +SKIP
    """
    options = _checked(options, run_dir, resume)
    with following(reporter, progress, options.loggers) as reporters:
        opened, team, place = _open(experiment, graphs, data, size, options, run_dir)
        return run_fit(team, *opened, options, place, reporters, resume)


def fit_seeds(
    experiment: Experiment | str | Path | None = None,
    graphs: Graphs | GraphStore | None = None,
    options: RunOptions | None = None,
    run_dir: Path | str | None = None,
    reporter: Reporter | None = None,
    resume: bool = False,
    *,
    seeds: Sequence[int],
    data: DataOptions | None = None,
    size: Size = "auto",
    progress: bool = True,
) -> SeedsResult:
    """Train once per seed, each in a sub-directory; a run that is stopped ends the series.

    Arguments are those of `fit`. `options.seed` is ignored, `options.max_time` limits all runs
    together, and `run_dir` gets sub-directories `seed-N` and a table of all seeds. With `resume`,
    finished runs stay as they are, and `seeds` are added to those of the series.

    Example:
        >>> result = fit_seeds("mnist", graphs, seeds=[0, 1, 2])  # doctest: +SKIP
    """
    options = _checked(options, run_dir, resume)
    check_is("seeds", seeds, Sequence, "a list, such as [0, 1, 2]")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds must be given, each once, got {list(seeds)}")
    runs = [replace(options, seed=seed) for seed in seeds]
    with following(reporter, progress, options.loggers) as reporters:
        opened, team, whole = _open(experiment, graphs, data, size, options, run_dir)
        with whole.kept(team, resume, is_series=True):
            if resume:
                known = [replace(options, seed=seed) for seed in read_config(whole.path).seeds]
                runs = [*known, *(run for run in runs if run not in known)]
            series = {whole.path / f"seed-{run.seed}": (lambda: opened, run) for run in runs}
            write = partial(
                write_config, whole.config, opened[0], options, [run.seed for run in runs]
            )
            return _fit_series(
                SeedsResult, team, whole, series, options.max_time, reporters, resume, write
            )


def fit_folds(
    experiment: Experiment | str | Path | None = None,
    graphs: Graphs | None = None,
    options: RunOptions | None = None,
    run_dir: Path | str | None = None,
    reporter: Reporter | None = None,
    resume: bool = False,
    *,
    folds: int = 10,
    data: DataOptions | None = None,
    size: Size = "auto",
    progress: bool = True,
    data_dir: Path | None = None,
) -> FoldsResult:
    """Cross-validate: train once per fold of your graphs, which is then the test set.

    The other folds are divided into training and validation. Folds are stratified by class. At the
    end, each graph is predicted by the model that was not trained on it.

    Arguments are those of `fit_seeds`, with `folds` instead of seeds, sub-directories `fold-N` and
    a file `out_of_fold.csv`. `data_dir` is the cache of graphs read from files; None for the
    default. `data.split` and `data.split_seed` say how folds are made. If the model is chosen by
    the data, the training graphs of the first fold decide.

    Example:
        >>> result = fit_folds(graphs=graphs, folds=10)  # doctest: +SKIP
        >>> result.mean("test", result.best.metric)  # doctest: +SKIP
    """
    options = _checked(options, run_dir, resume)
    with following(reporter, progress, options.loggers) as reporters:
        opened = _folds_of(experiment, graphs, data, folds, size, data_dir)
        first, _ = opened(0)
        team, whole = _launch(first, options, run_dir)
        with whole.kept(team, resume, is_series=True, folds=folds):
            series = {
                whole.path / f"fold-{number}": (partial(opened, number), options)
                for number in range(folds)
            }
            write = partial(write_config, whole.config, first, options, folds=folds)
            result = _fit_series(
                FoldsResult, team, whole, series, options.max_time, reporters, resume, write
            )
            is_whole = len(result.runs) == folds and all(run.is_done for run in result.runs)
            if team.is_first and is_whole:
                _write_out_of_fold(result, opened, team.device)
    return result


Opened = tuple[Experiment, GraphStore]
Series = TypeVar("Series", bound=SeedsResult)


def _fit_series(
    kind: type[Series],
    team: ProcessGroup,
    whole: RunDir,
    series: Mapping[Path, tuple[Callable[[], Opened], RunOptions]],
    max_time: float,
    reporters: Sequence[Reporter],
    resume: bool,
    before: Callable[[], None],
) -> Series:
    """Train one run after the other; write the table of all runs after each."""
    begin = time.monotonic()
    # those that are done stay in the table, even where one before them stops
    found = {path: RunDir(path).done() if resume else None for path in series}
    for path, (opened, options) in series.items():
        experiment, store = opened()
        place = RunDir(path)
        run = run_fit(
            team,
            experiment,
            store,
            replace(options, max_time=max(max_time - (time.monotonic() - begin), 0.0)),
            place,
            reporters,
            resume and place.config.exists(),
            before,
        )
        found[path] = run
        result = kind(whole.path, tuple(each for each in found.values() if each is not None))
        if team.is_first:
            whole.write_results(result)
        if not run.is_done:
            break
    return result


def _checked(options: RunOptions | None, run_dir: Path | str | None, resume: bool) -> RunOptions:
    """Return the options, the defaults for None; an empty path is rejected."""
    check_is("options", options, RunOptions | None)
    if run_dir == "":
        raise UserError("run_dir must be a name, or None for a new one, got ''")
    if resume and run_dir is None:
        raise UserError("run_dir must be given to resume a run, got None")
    return options or RunOptions()


def _launch(
    experiment: Experiment, options: RunOptions, run_dir: Path | str | None
) -> tuple[ProcessGroup, RunDir]:
    """Start the processes and name the run directory; first reject what cannot run."""
    if experiment.data is not None and experiment.split_sizes is not None:
        raise UserError(
            "split_sizes must be null for custom graphs, which are not generated, "
            f"got {experiment.split_sizes}"
        )
    if experiment.model.global_model == "mamba":
        device = resolve_device(options.device)
        choose_backend(experiment.model.mamba.backend, device, "model.mamba.backend")
    team = start_processes(options)
    named = new_run_dir(experiment, team) if run_dir is None else Path(run_dir)
    return team, RunDir(named)


def _named(experiment: Experiment | str | Path | None, size: Size) -> Experiment | None:
    """Read a preset by name; None if model and training are chosen by the data."""
    if isinstance(experiment, str | Path):
        experiment = load_experiment(experiment)
    if experiment is not None:
        check_is(
            "experiment",
            experiment,
            Experiment,
            "or the name of a preset; graphs are given as graphs=...",
        )
        if size != "auto":
            raise UserError(f"size must be left out beside an experiment, got {size!r}")
    return experiment


def _open(
    experiment: Experiment | str | Path | None,
    graphs: Graphs | GraphStore | None,
    data: DataOptions | None,
    size: Size,
    options: RunOptions,
    run_dir: Path | str | None,
) -> tuple[Opened, ProcessGroup, RunDir]:
    """Read a preset by name, start the processes, and open the graphs if none are given."""
    experiment, store = _named(experiment, size), None
    if isinstance(graphs, GraphStore):
        store = graphs
    elif graphs is not None:
        experiment, store = take_graphs(graphs, experiment, data, size)
    if experiment is None:
        raise UserError(UNNAMED)
    if data is not None and (graphs is None or graphs is store):
        raise UserError("data must be left out without graphs of PyG: nobody reads it")
    team, place = _launch(experiment, options, run_dir)
    return open_data(experiment) if store is None else (experiment, store), team, place


UNNAMED = "experiment must be a preset, a YAML file or an Experiment, got None"


def _folds_of(
    experiment: Experiment | str | Path | None,
    graphs: Graphs | None,
    data: DataOptions | None,
    folds: int,
    size: Size,
    data_dir: Path | None,
) -> Callable[[int], Opened]:
    """Return a function that opens the graphs with a given fold as test set."""
    experiment = _named(experiment, size)
    if folds < 2:  # noqa: PLR2004
        raise UserError(f"folds must be 2 at least, got {folds}")
    if graphs is not None:
        listed = networkx_graphs(graphs) or list_of(graphs)
        own = data or DataOptions()
        if experiment is None:
            experiment, _ = take_graphs(listed, None, replace(own, folds=folds), size)
        return lambda fold: take_graphs(listed, experiment, replace(own, folds=folds, fold=fold))
    if experiment is None:
        raise UserError(UNNAMED)
    if (files := experiment.data) is None:
        raise UserError(
            f"folds must be left out for {experiment.dataset}, whose split is published: they are "
            "for custom graphs"
        )

    def open_fold(fold: int) -> Opened:
        named = replace(files, folds=folds, fold=fold)
        return open_data(replace(experiment, data=named), data_dir)

    return open_fold


def _write_out_of_fold(
    result: FoldsResult, opened: Callable[[int], Opened], device: torch.device
) -> None:
    """Write out-of-fold predictions; without the weights of a fold there is no file."""
    if not all(RunDir(run.run_dir).best.exists() for run in result.runs):
        return
    parts: list[Predictions] = []
    for number, run in enumerate(result.runs):
        experiment, store = opened(number)
        if not number:
            named, folds = names_in(experiment), torch.zeros(len(store), dtype=torch.int64)
        test = store.split_ids("test")
        folds[test] = number
        parts += load(run.run_dir).to(device).stream(store, test)
    names: dict[str, Any] = {}
    if named is not None:
        names = {"graph_name": named.graph_name, "node_name": named.node_name}
        names["skipped"] = [each.row for each in named.skipped]
    whole = Predictions.cat(parts).by_graph()
    write_predictions(result.predictions, [whole], folds=folds, **names)


def run_fit(
    team: ProcessGroup,
    experiment: Experiment,
    store: GraphStore,
    options: RunOptions,
    run_dir: RunDir,
    reporters: Sequence[Reporter],
    resume: bool,
    before: Callable[[], None] = lambda: None,
) -> RunResult:
    """`fit` with started processes and opened graphs.

    The first process calls `before` after all checks and before anything is written.
    """
    _check_splits(experiment, store)
    experiment.check_loss()
    experiment.outline()
    experiment, store = in_parts(experiment, store, team.device)
    options = decided(options, experiment, store, team)
    fast = is_captured(options, team.device, team.world, store)
    with (
        own_generators(options.seed),
        allow_tf32(team.device, options.tf32),
        StopSignals(options.max_time, options.checkpoint_every) as stops,
        run_dir.kept(team, resume),
    ):
        # a run that was killed before its first state begins once more
        is_resumed = resume and run_dir.state.exists()
        if team.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(team.device)
        model = make_model(experiment, options, team)
        model.measure_inputs(store)
        team.share(model)
        optimizer = make_optimizer(model, experiment.optim, team.device, fast)
        # from here on dropout must differ from process to process
        seed_all(process_seed(options.seed, team.rank))
        train, ids = experiment.train, store.split_ids("train")
        batch_size = train.batch_size
        if store.is_transductive and len(ids) == 1:
            ids, batch_size = ids.repeat(train.steps_per_epoch), 1
        batch_size *= options.accumulate_grad_batches
        loss_sum = torch.zeros((), dtype=torch.float64, device=team.device)
        state = RunState(
            experiment=experiment,
            options=options,
            model=model,
            optimizer=optimizer,
            schedule=Schedule(experiment.optim, train.epochs),
            sampler=BatchSampler(ids, batch_size, options.seed, rank=team.rank, world=team.world),
            progress=Progress(loss_sum=loss_sum),
            team=team,
            average=MovingAverage(model, train.ema_decay) if train.ema_decay else None,
            graphs=identity_of(experiment, store),
        )
        if is_resumed:
            state.load(run_dir.state)
        kind = partial(CapturedStep, is_required=options.cuda_graph == "on") if fast else TrainStep
        step = kind(
            *(model, optimizer, store, experiment, team),
            precision=options.precision,
            seed=options.seed,
            taken=state.progress.taken,
            average=state.average,
        )
        watch = NonFiniteCheck(model, optimizer, team, run_dir.dump, state.about())
        loop = Loop(state, store, step, watch, stops, run_dir, reporters, fast)
        # one that is done keeps its files: what it took, where and when
        result = run_dir.done() if is_resumed else None
        team.rank_zero_first(before)
        if not is_resumed:
            loop.begin()
        if result is None:
            loop.write_best()
        if team.is_first:
            cut_rows(run_dir.metrics, state.progress.epoch)
            start = _start(state, store, run_dir)
            for reporter in reporters:
                reporter.on_start(start)
        if result is None:
            result = _train(loop)
        if team.is_first:
            # the rows of a run that is done may be lost
            if run_dir.metrics.exists() and can_draw():
                title = f"{experiment.dataset_info.title}, seed {result.seed}"
                draw_curves(run_dir.metrics, run_dir.curves, title, result.metric)
            for reporter in reporters:
                reporter.on_end(result)
        return result


def _train(loop: Loop) -> RunResult:
    """Compile and train; if a GPU has too little memory, say what takes less."""
    try:
        loop.compile()
        return loop.run()
    except torch.OutOfMemoryError as full:
        raise UserError(_out_of_memory(loop.state.experiment, loop.store)) from full


def _out_of_memory(experiment: Experiment, store: GraphStore) -> str:
    """Say what did not fit into the memory of the GPU, and what takes less."""
    train = experiment.train
    if isinstance(store, NeighbourStore) and experiment.dataset_info.task.level == "link":
        what = "the whole graph, layer by layer, since links are ranked among all nodes,"
        less = "lower model.channels, or set device to 'cpu'"
    elif isinstance(store, NeighbourStore):
        what = f"a batch of {train.batch_size} nodes with their neighbours"
        less = "lower train.batch_size or train.neighbours"
    elif store.is_transductive and len(store) == 1:
        what = "a step on the whole graph"
        less = "set train.neighbours to 10 to sample neighbours, or lower model.channels"
    else:
        what = f"a batch of {train.batch_size} graphs"
        less = "lower train.batch_size, and raise accumulate_grad_batches as much for equal steps"
    return f"{what} must fit into the memory of the GPU, and does not: {less}"


def _check_splits(experiment: Experiment, store: GraphStore) -> None:
    """Reject splits that cannot be scored, before the first epoch."""
    level, own = experiment.dataset_info.task.level, experiment.data
    shares = (
        f"; data.split_ratios {own.split_ratios} share out those without a split" if own else ""
    )
    for split in SPLITS:
        ids = store.split_ids(split)
        if not len(ids):
            raise UserError(
                f"{split} must hold graphs, and all {len(store)} are in other splits{shares}"
            )
        # a test set may keep its labels to itself: its score is NaN then
        if split != "test" and not labels_per_graph(store, level, split)[ids].any():
            unit = f"{level}s" if store.is_transductive else "graphs"
            raise UserError(
                f"{split} must hold labels, and its {store.split_size(split)} {unit} have none"
            )


def _start(state: RunState, store: GraphStore, run_dir: RunDir) -> StartRecord:
    """Report data set, model, inferred task and decisions."""
    notes = [*understood(state.experiment, store), *state.experiment.chosen.splitlines()]
    if store.is_transductive:
        items = "pairs" if PAIRS + LINKS in store.tables else "nodes"
        notes.append(f"one graph: training, validation and test are {items} of it ({store.source})")
    if isinstance(store, NeighbourStore):
        told = " and ".join(map(str, store.fanouts.tolist()))
        scored = "those of sampled neighbours too" if store.scored is store else "exact"
        notes.append(
            f"batches of nodes with {told} neighbours (train.neighbours), since the whole graph "
            f"may not fit into memory; scores are {scored}"
        )
    elif store.is_streamed:
        notes.append(f"the graphs take {store.nbytes:,} bytes: batches are sent to the GPU")
    return StartRecord(
        experiment=state.experiment,
        options=state.options,
        run_dir=run_dir.path,
        metric=state.model.task.metric,
        device=str(state.team.device),
        processes=state.team.world,
        parameters=state.parameters,
        graphs={split: store.split_size(split) for split in SPLITS},
        unit=f"{state.model.task.level}s" if store.is_transductive else "graphs",
        notes=tuple(notes),
        epochs=state.experiment.train.epochs,
        steps=len(state.sampler),
        first_epoch=state.progress.epoch,
    )


OPTIMIZERS: dict[OptimizerName, type[torch.optim.AdamW] | type[torch.optim.Adam]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
}


def make_model(experiment: Experiment, options: RunOptions, team: ProcessGroup) -> GraphMamba:
    """Build the model on the device, with synchronised BatchNorm if requested."""
    model = experiment.build(seed=options.seed)
    model.backbone.noise_seed.process = team.rank
    if options.sync_batchnorm and team.world > 1:
        sync_norms(model)
    return model.to(team.device)


def make_optimizer(
    model: GraphMamba, optim: OptimConfig, device: torch.device, is_captured: bool
) -> Optimizer:
    """Make the optimizer, capturable for CUDA graphs."""
    kind, rate = OPTIMIZERS[optim.optimizer], optim.lr
    if not is_captured:
        return kind(model.parameters(), lr=rate, weight_decay=optim.weight_decay)
    # A captured graph reads the rate where it lies; a number would be part of the graph.
    return kind(
        model.parameters(),
        lr=torch.tensor(rate, device=device),
        weight_decay=optim.weight_decay,
        fused=True,
        capturable=True,
    )

"""From an experiment to a trained model, once or for several seeds: a run's parts put together."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
from graphmamba.training.compile import compile_now, decided, is_captured
from graphmamba.training.console import following
from graphmamba.training.defaults import Size
from graphmamba.training.distributed import (
    ProcessGroup,
    process_group_of,
    rounded_products,
    start_fabric,
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
from graphmamba.training.predict import Predictions, write_predictions
from graphmamba.training.predictor import load
from graphmamba.training.reporter import Reporter, StartRecord
from graphmamba.training.results import FoldsResult, RunResult, SeedsResult
from graphmamba.training.run_dir import (
    RunDir,
    can_draw,
    cut_rows,
    draw_curves,
    new_run_dir,
    read_config,
    write_config,
)
from graphmamba.training.schedule import Schedule
from graphmamba.training.step import CapturedStep, TrainStep
from graphmamba.training.task_summary import understood
from graphmamba.training.watch import NonFiniteCheck, StopSignals

LABELLED = ("train", "validation")
"""Splits without whose labels no epoch could be taken or chosen."""


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
    """Train, score every epoch, keep the best one.

    Args:
        experiment: Model and training: an `Experiment`, the name of a preset such as `cluster` or
            `cluster/gin`, or a YAML file; None chooses model and training by `graphs`.
        graphs: Your graphs, as PyTorch Geometric has them: with `x`, `edge_index`, labels `y`,
            perhaps `edge_attr`, and perhaps their `split` as a word. None for the data set that the
            experiment names.
        options: Seed, device, when to stop; None for the defaults.
        run_dir: Where the run writes its files; None for a new folder under `runs`.
        reporter: Who follows the run; None for nobody.
        resume: Whether to go on with the run in `run_dir`.
        data: What the labels of `graphs` are, and how graphs that name no split are split.
        size: Size of the model that is chosen where no experiment is given: `auto`, `tiny`,
            `small`, `base`, or `500k` for at most 500,000 parameters.
        progress: Whether to show bars on a terminal, a line an epoch elsewhere.

    Example:
        >>> fit("pattern", options=RunOptions(seed=1))  # doctest: +SKIP
        >>> fit("peptides-func", graphs, run_dir="runs/mine")  # doctest: +SKIP
    """
    options = _checked(options, run_dir, resume)
    with following(reporter, progress, options.loggers) as reporters:
        experiment, store = _resolve(experiment, graphs, data, size)
        fabric, place = _launch(experiment, options, run_dir)
        if store is None:
            experiment, store = open_data(experiment)
        return run_fit(fabric, experiment, store, options, place, reporters, resume)


def _checked(options: RunOptions | None, run_dir: Path | str | None, resume: bool) -> RunOptions:
    """Return the options, the defaults for None; a folder without a name is rejected."""
    check_is("options", options, RunOptions | None)
    if run_dir == "":
        raise UserError("run_dir must be a name, or None for a new one, got ''")
    if resume and run_dir is None:
        raise UserError("run_dir must be given to resume a run, got None")
    return options or RunOptions()


def _launch(
    experiment: Experiment, options: RunOptions, run_dir: Path | str | None
) -> tuple[Any, RunDir]:
    """Start the processes and name the folder; what cannot run there is rejected before."""
    if experiment.data is not None and experiment.split_sizes is not None:
        raise UserError(
            "split_sizes must be null for custom graphs, which are not generated, "
            f"got {experiment.split_sizes}"
        )
    if experiment.model.global_model == "mamba":
        device = resolve_device(options.device)
        choose_backend(experiment.model.mamba.backend, device, "model.mamba.backend")
    fabric = start_fabric(options)
    named = new_run_dir(experiment, process_group_of(fabric)) if run_dir is None else Path(run_dir)
    return fabric, RunDir(named)


def _named(experiment: Experiment | str | Path | None, size: Size) -> Experiment | None:
    """Read a preset by its name; None where model and training are chosen by the graphs."""
    if isinstance(experiment, str | Path):
        experiment = load_experiment(experiment)
    if experiment is not None:
        check_is("experiment", experiment, Experiment, "or the name of a preset")
        if size != "auto":
            raise UserError(f"size must be left out beside an experiment, got {size!r}")
    return experiment


def _resolve(
    experiment: Experiment | str | Path | None,
    graphs: Graphs | GraphStore | None,
    data: DataOptions | None,
    size: Size,
) -> tuple[Experiment, GraphStore | None]:
    """Read a preset by its name, and make the experiment about the graphs that were given."""
    if experiment is None and graphs is None:
        raise UserError("experiment must be a preset, a YAML file or an Experiment, got None")
    experiment = _named(experiment, size)
    if experiment is None and isinstance(graphs, GraphStore):
        raise UserError("experiment must be given beside a GraphStore, got None: see take_graphs")
    if graphs is None or isinstance(graphs, GraphStore):
        if data is not None:
            raise UserError("data must be left out without graphs of PyG: nobody reads it")
        assert experiment is not None
        return experiment, graphs
    return take_graphs(graphs, experiment, data, size)


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
    """Train once for each seed, in a sub-folder each; a run that is told to stop ends the series.

    Args:
        experiment: As in `fit`.
        graphs: As in `fit`.
        options: As in `fit`; their seed is not used, and `max_time` is that of all runs together.
        run_dir: Where sub-folders `seed-N` and the table of all seeds go.
        reporter: Who follows all runs.
        resume: Whether to go on with what is in `run_dir`: runs that are done stay as they are.
        seeds: One run each; to a series that is resumed they are added.
        data: As in `fit`.
        size: As in `fit`.
        progress: As in `fit`.

    Example:
        >>> result = fit_seeds("mnist", graphs, seeds=[0, 1, 2])  # doctest: +SKIP
    """
    options = _checked(options, run_dir, resume)
    check_is("seeds", seeds, Sequence, "a list, such as [0, 1, 2]")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds must be given, each once, got {list(seeds)}")
    for seed in seeds:
        RunOptions(seed=seed)
    with following(reporter, progress, options.loggers) as reporters:
        begin = time.monotonic()
        experiment, store = _resolve(experiment, graphs, data, size)
        fabric, whole = _launch(experiment, options, run_dir)
        if store is None:
            experiment, store = open_data(experiment)
        group = process_group_of(fabric)
        with whole.kept(group, resume, is_series=True):
            if resume:
                seeds = [*dict.fromkeys([*read_config(whole.path).seeds, *seeds])]
            places = {seed: RunDir(whole.path / f"seed-{seed}") for seed in seeds}
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
                    reporters,
                    resume and place.config.exists(),
                    partial(write_config, whole.config, experiment, options, seeds),
                )
                found[seed] = run
                runs = (found.get(each) for each in seeds)
                result = SeedsResult(whole.path, tuple(each for each in runs if each is not None))
                if group.is_first:
                    whole.write_results(result)
                if not run.is_done:
                    break
    return result


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
    """Cross-validate: train once for each fold of your graphs, which is then the test set.

    The other folds are shared out between training and validation. Folds have equal shares of the
    classes, where there are classes. When all are trained, each graph is predicted by the model
    that has not seen it.

    Args:
        experiment: As in `fit`.
        graphs: As in `fit`; None for those in the files that the experiment names.
        options: As in `fit`; their `max_time` is that of all runs together.
        run_dir: Where sub-folders `fold-N`, the table of all folds and `out_of_fold.csv` go.
        reporter: Who follows all runs.
        resume: Whether to go on with what is in `run_dir`: runs that are done stay as they are.
        folds: How many there are.
        data: As in `fit`; its `split` and `split_seed` say how folds are drawn.
        size: As in `fit`; the model is chosen by the graphs that the first fold trains on.
        progress: As in `fit`.
        data_dir: Where what is read from files is kept; None for the default place.

    Example:
        >>> result = fit_folds(graphs=graphs, folds=10)  # doctest: +SKIP
        >>> result.mean("test", result.best.metric)  # doctest: +SKIP
    """
    options = _checked(options, run_dir, resume)
    with following(reporter, progress, options.loggers) as reporters:
        begin = time.monotonic()
        opened = _folds_of(experiment, graphs, data, folds, size, data_dir)
        first, _ = opened(0)
        fabric, whole = _launch(first, options, run_dir)
        group = process_group_of(fabric)
        with whole.kept(group, resume, is_series=True, folds=folds):
            places = [RunDir(whole.path / f"fold-{number}") for number in range(folds)]
            found = [place.done() if resume else None for place in places]
            for number, place in enumerate(places):
                if found[number] is None:
                    left = max(options.max_time - (time.monotonic() - begin), 0.0)
                    found[number] = run_fit(
                        fabric,
                        *opened(number),
                        replace(options, max_time=left),
                        place,
                        reporters,
                        resume and place.config.exists(),
                        partial(write_config, whole.config, first, options, folds=folds),
                    )
                runs = tuple(each for each in found if each is not None)
                result = FoldsResult(whole.path, runs)
                if group.is_first:
                    whole.write_results(result)
                if not runs[-1].is_done:
                    break
            if group.is_first and len(runs) == folds and all(run.is_done for run in runs):
                _write_out_of_fold(result, opened, group.device)
    return result


def _folds_of(
    experiment: Experiment | str | Path | None,
    graphs: Graphs | None,
    data: DataOptions | None,
    folds: int,
    size: Size,
    data_dir: Path | None,
) -> Callable[[int], tuple[Experiment, GraphStore]]:
    """Return what opens the graphs with one of the folds as their test set."""
    if isinstance(graphs, GraphStore):
        raise UserError("graphs must be those of PyG or networkx for folds, got a GraphStore")
    experiment = _named(experiment, size)
    if folds < 2:  # noqa: PLR2004
        raise UserError(f"folds must be 2 at least, got {folds}")
    if graphs is not None:
        listed = networkx_graphs(graphs) or list_of(graphs)
        own = data or DataOptions()
        if experiment is None:
            experiment, _ = take_graphs(listed, None, replace(own, folds=folds), size)

        def take(fold: int) -> tuple[Experiment, GraphStore]:
            return take_graphs(listed, experiment, replace(own, folds=folds, fold=fold))

        return take
    if experiment is None:
        raise UserError("experiment must be a preset, a YAML file or an Experiment, got None")
    if experiment.data is None:
        raise UserError(
            f"folds must be left out for {experiment.dataset}, whose split is published: they are "
            "for custom graphs"
        )
    files = experiment.data

    def open_fold(fold: int) -> tuple[Experiment, GraphStore]:
        named = replace(files, folds=folds, fold=fold)
        return open_data(replace(experiment, data=named), data_dir)

    return open_fold


def _write_out_of_fold(
    result: FoldsResult,
    opened: Callable[[int], tuple[Experiment, GraphStore]],
    device: torch.device,
) -> None:
    """Predict each graph by the model that did not see it; a fold without weights leaves none."""
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
    fabric: Any,
    experiment: Experiment,
    store: GraphStore,
    options: RunOptions,
    run_dir: RunDir,
    reporters: Sequence[Reporter],
    resume: bool,
    before: Callable[[], None] | None = None,
) -> RunResult:
    """Do what `fit` does, with the processes that were started and the graphs that were opened.

    The first process calls `before` when nothing is left that could be rejected, and nothing has
    been written.
    """
    _check_splits(experiment, store)
    experiment.check_loss()
    experiment.check_parts()
    team = process_group_of(fabric)
    experiment, store = in_parts(experiment, store, team.device)
    options = decided(options, experiment, store, team)
    fast = is_captured(options, team.device, team.world, store)
    with (
        own_generators(options.seed),
        rounded_products(team.device, options.tf32),
        StopSignals(options.max_time, options.checkpoint_every) as stops,
        run_dir.kept(team, resume) as check_folder_stays,
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
        state = make_state(experiment, options, model, optimizer, store, team)
        if is_resumed:
            state.load(run_dir.state)
        step = _step(state, store, fast)
        watch = NonFiniteCheck(model, optimizer, team, run_dir.dump, state.about())
        loop = Loop(state, store, step, watch, stops, run_dir, reporters, check_folder_stays, fast)
        # one that is done keeps its files: what it took, where and when
        result = run_dir.done() if is_resumed else None
        if before is not None:
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
            compile_before(loop)
            result = loop.run()
        if team.is_first:
            # the rows of a run that is done may be lost
            if run_dir.metrics.exists() and can_draw():
                title = f"{experiment.dataset_info.title}, seed {result.seed}"
                draw_curves(run_dir.metrics, run_dir.curves, title, result.metric)
            for reporter in reporters:
                reporter.on_end(result)
        return result


def _check_splits(experiment: Experiment, store: GraphStore) -> None:
    """Reject what could be trained on but not scored, before an epoch is lost on it."""
    level = experiment.dataset_info.task.level
    own = experiment.data
    shares = (
        f"; data.split_ratios {own.split_ratios} share out graphs that name no split" if own else ""
    )
    for split in SPLITS:
        ids = store.split_ids(split)
        if not len(ids):
            raise UserError(
                f"{split} must hold graphs, and all {len(store)} are in other splits{shares}"
            )
        # a test set may keep its labels to itself: its score is no number then
        if split in LABELLED and not labels_per_graph(store, level, split)[ids].any():
            raise UserError(f"{split} must hold labels, and its graphs have none ({len(ids)})")


def _step(state: RunState, store: GraphStore, is_captured: bool) -> TrainStep:
    """Make the step."""
    parts = state.model, state.optimizer, store, state.experiment, state.team
    shared: dict[str, Any] = {
        "precision": state.options.precision,
        "seed": state.options.seed,
        "taken": state.progress.taken,
        "average": state.average,
    }
    if is_captured:
        return CapturedStep(*parts, is_required=state.options.cuda_graph == "on", **shared)
    return TrainStep(*parts, **shared)


def compile_before(loop: Loop) -> None:
    """Compile kernels, and the model where that was decided; go on without where it fails."""
    state = loop.state
    if loop.is_captured:
        loop.compile_kernels()
    if state.options.compile == "off":
        return
    models = [state.model] if state.average is None else [state.model, state.average.model]
    why_not = compile_now(models, loop.step.warm_up)
    if why_not is not None and state.options.cuda_graph == "on":
        raise UserError(
            f"cuda_graph must be 'auto' or 'off', since torch.compile failed: {why_not}"
        )
    if why_not is not None:
        told = f"torch.compile failed, and the run goes on without: {why_not}"
        warnings.warn(told, stacklevel=2)


def _start(state: RunState, store: GraphStore, run_dir: RunDir) -> StartRecord:
    """Say what is run, how the task was understood, and what was decided about the graphs."""
    notes = [*understood(state.experiment, store), *state.experiment.chosen.splitlines()]
    if store.is_transductive:
        items = "pairs" if PAIRS + LINKS in store.tables else "nodes"
        notes.append(f"training, validation and test are {items} of one graph: {store.source}")
    if isinstance(store, NeighbourStore):
        told = " and ".join(map(str, store.fanouts.tolist()))
        scored = "those of sampled neighbours too" if store.scored is store else "exact"
        notes.append(
            f"batches of nodes with {told} neighbours (train.neighbours), since the whole graph "
            f"may not fit into memory; scores are {scored}"
        )
    elif store.is_streamed:
        notes.append(
            f"the graphs take {store.nbytes:,} bytes, too many for the GPU: batches are sent to it"
        )
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
    """Build the model on the device, its BatchNorm over all processes if that is asked for."""
    model = experiment.build(seed=options.seed)
    model.backbone.noise_seed.process = team.rank
    if options.sync_batchnorm and team.world > 1:
        sync_norms(model)
    return model.to(team.device)


def make_optimizer(
    model: GraphMamba, optim: OptimConfig, device: torch.device, is_captured: bool
) -> Optimizer:
    """Make the optimizer; a captured step needs one that the GPU runs by itself."""
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


def make_state(
    experiment: Experiment,
    options: RunOptions,
    model: GraphMamba,
    optimizer: Optimizer,
    store: GraphStore,
    team: ProcessGroup,
) -> RunState:
    """Put together what is saved, at the beginning of the first epoch."""
    ids, size = store.split_ids("train"), experiment.train.batch_size
    if store.is_transductive and len(ids) == 1:
        ids, size = ids.repeat(experiment.train.steps_per_epoch), 1
    sampler = BatchSampler(
        ids,
        size * options.accumulate_grad_batches,
        options.seed,
        rank=team.rank,
        world=team.world,
    )
    progress = Progress(loss_sum=torch.zeros((), dtype=torch.float64, device=team.device))
    schedule = Schedule(experiment.optim, experiment.train.epochs)
    decay = experiment.train.ema_decay
    average = MovingAverage(model, decay) if decay else None
    return RunState(
        experiment,
        options,
        model,
        optimizer,
        schedule,
        sampler,
        progress,
        team,
        average,
        identity_of(experiment, store),
    )

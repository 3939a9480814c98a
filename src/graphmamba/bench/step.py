"""Whole training steps of the shipped experiments, on drawn graphs of their sets' sizes."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np
import torch

from graphmamba.bench.timing import once_ms
from graphmamba.config import load_experiment
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.sampler import Ids
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import precomputed
from graphmamba.errors import UserError
from graphmamba.stack.exphormer import ExphormerStack
from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.stack.mamba_block import SelectivePath
from graphmamba.task.model import GraphMamba, columns_read
from graphmamba.train.build import make_optimizer
from graphmamba.train.captured_forward import CapturedForward
from graphmamba.train.compile import compile_parts
from graphmamba.train.experiment import Experiment
from graphmamba.train.labels import labelled_batch
from graphmamba.train.options import Precision
from graphmamba.train.step import CapturedStep, TrainStep

WARM_UP = 3
"""Passes over all batches before the clock starts: kernels are compiled, steps captured."""


@dataclass(frozen=True)
class StepShape:
    """Which experiment is timed, on graphs of which sizes."""

    benchmark: str
    spread: float
    """Standard deviation of the logarithm of the graphs' nodes."""
    longest: int
    batches: int = 6


SHAPES = {
    "peptides-func": StepShape("peptides-func", 0.5, 444),
    "pascalvoc-sp": StepShape("pascalvoc-sp", 0.03, 500),
    "malnet-tiny": StepShape("malnet-tiny", 0.8, 4_994),
    "pattern": StepShape("pattern", 0.3, 188),
    "cluster": StepShape("cluster", 0.3, 190),
    "cifar10": StepShape("cifar10", 0.05, 150),
}


@dataclass(frozen=True)
class StepTimes:
    """One experiment's times in milliseconds, by the median over batches."""

    benchmark: str
    kind: str
    """`compiled` by torch.compile and captured as CUDA graphs, `captured` alone, `plain` as Python
    says, `reference` in plain PyTorch."""
    graphs: int
    nodes: float
    """Of a batch, on average."""
    edges: float
    layers: int
    parameters: int
    train_ms: float
    evaluate_ms: float | None
    """None where it was not timed: plain PyTorch on a CPU takes minutes for all line-ups."""
    peak_mib: float | None
    """Most that one step takes, run as Python says, beyond what is there between steps; of the
    batch that takes the most."""
    held_mib: float | None = None
    """What stays between steps: weights, the optimizer's numbers, work space of the products, and
    the memory of all captured steps; the graphs do not count."""


def draw_store(shape: StepShape, batch_size: int, seed: int = 0) -> tuple[Experiment, GraphStore]:
    """Draw graphs for some batches, with the columns that the experiment's model reads."""
    experiment = load_experiment(shape.benchmark, {"recipe.batch_size": batch_size})
    count, mean = shape.batches * batch_size, experiment.data.mean_nodes
    drawn = np.random.default_rng(seed).lognormal(-(shape.spread**2) / 2, shape.spread, count)
    sizes = (mean * drawn).round().clip(4, shape.longest).astype(int).tolist()
    # All of them are for training.
    split = torch.zeros(count, dtype=torch.int64)
    store = GraphStore.from_pyg(sized_graphs(experiment.data, sizes, seed), split)
    asked = columns_read(experiment.model, experiment.encoder)
    for part in asked.parts().values():
        made = precomputed(store.columns(), part, "cpu")
        store = store.with_columns(nodes=made.nodes, pairs=made.pairs)
    return experiment, store


def measure_captured(
    shape: StepShape,
    device: torch.device,
    batch_size: int,
    *,
    compiles: bool = True,
    precision: Precision = "32-true",
) -> StepTimes:
    """Time the step and the evaluation as CUDA graphs, batches made on the device included."""
    experiment, store = draw_store(shape, batch_size)
    store = store.to(device)
    # The graphs of a set that was timed before hold memory until they are collected.
    gc.collect()
    torch.cuda.empty_cache()
    begin = torch.cuda.memory_reserved()
    model, recipe = experiment.build().to(device), experiment.recipe
    if compiles:
        compile_parts(model)
    optimizer = make_optimizer(model, recipe, device, is_captured=True)
    batches = list(torch.arange(len(store)).split(batch_size))
    model.train()
    stream = torch.cuda.Stream(device)
    parts = model, optimizer, store, experiment
    plain = TrainStep(*parts, precision=precision)
    peak = _peak_bytes(plain.step, batches)
    step = CapturedStep(*parts, stream=stream, precision=precision, is_required=True)
    train_ms = _device_ms(step.step, batches)
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved() - begin
    ids = torch.arange(len(store))
    forward = CapturedForward(model, store, ids, batch_size, precision, stream)
    model.eval()
    evaluate_ms = _device_ms(forward.predict, batches)
    kind = "compiled" if compiles else "captured"
    if precision != "32-true":
        kind = f"{kind}, {precision}"
    return _times(kind, experiment, store, model, (train_ms, evaluate_ms), peak, held)


def measure_plain(
    shape: StepShape, device: torch.device, batch_size: int, *, is_reference: bool = False
) -> StepTimes:
    """Time the step without capturing it; `is_reference` takes plain PyTorch, on a CPU alone."""
    experiment, store = draw_store(shape, batch_size)
    store, model = store.to(device), experiment.build().to(device)
    if is_reference:
        take_references(model)
    optimizer = make_optimizer(model, experiment.recipe, device, is_captured=False)
    train = TrainStep(model, optimizer, store, experiment).step
    level = experiment.data.task.level

    def predict(ids: Ids) -> None:
        with torch.no_grad():
            model(labelled_batch(store, ids, level, (0,))[0])

    batches = list(torch.arange(len(store)).split(batch_size))
    # Plain PyTorch takes minutes for a batch: one has to do.
    clock = _device_ms if device.type == "cuda" else _host_ms
    model.train()
    train_ms = once_ms(partial(train, batches[0])) if is_reference else clock(train, batches)
    peak = _peak_bytes(train, batches) if device.type == "cuda" else None
    model.eval()
    times = train_ms, None if is_reference else clock(predict, batches)
    kind = "reference" if is_reference else "plain"
    return _times(kind, experiment, store, model, times, peak)


def take_references(model: GraphMamba) -> None:
    """Let plain PyTorch run every operation of a model on a CPU."""
    places = sorted({each.device.type for each in model.parameters()})
    if places != ["cpu"]:
        raise UserError(f"model must be on a CPU to run in plain PyTorch, got {', '.join(places)}")
    for part in model.modules():
        if isinstance(part, SelectivePath):
            part.options = replace(part.options, backend="reference")
        if isinstance(part, ExphormerStack | GatedGCN):
            part.backend = "reference"


def _peak_bytes(work: Callable[[Ids], object], batches: list[Ids]) -> int:
    """Most that the work on a batch takes beyond what is there without it."""
    # Kernels are compiled and work space is taken before anything counts.
    work(batches[0])
    peaks = []
    for ids in batches:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work(ids)
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    return max(peaks)


def _device_ms(work: Callable[[Ids], object], batches: list[Ids]) -> float:
    """Median over passes of the time for all batches, waited for once a pass."""
    for _ in range(WARM_UP):
        for ids in batches:
            work(ids)
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for ids in batches:
            work(ids)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 1e3 * median(times) / len(batches)


def _host_ms(work: Callable[[Ids], object], batches: list[Ids]) -> float:
    work(batches[0])
    return median(once_ms(partial(work, ids)) for ids in batches)


def _times(
    kind: str,
    experiment: Experiment,
    store: GraphStore,
    model: GraphMamba,
    times: tuple[float, float | None],
    peak: int | None,
    held: int | None = None,
) -> StepTimes:
    batches = len(store) / experiment.recipe.batch_size
    return StepTimes(
        benchmark=experiment.benchmark,
        kind=kind,
        graphs=experiment.recipe.batch_size,
        nodes=float(store.tables["nodes"].ptr[-1]) / batches,
        edges=float(store.tables["edges"].ptr[-1]) / batches,
        layers=experiment.model.layers,
        parameters=sum(each.numel() for each in model.parameters()),
        train_ms=times[0],
        evaluate_ms=times[1],
        peak_mib=None if peak is None else peak / 2**20,
        held_mib=None if held is None else held / 2**20,
    )

"""Times of whole training steps: batch, forward, backward, clipping and update.

    PYTHONPATH=src python benchmarks/step.py --device auto --out FILE.json

On a GPU: the shipped experiments as CUDA graphs and as plain calls, on drawn graphs of their sets'
sizes, and one full-batch step on graphs of up to a million nodes. On a CPU: Peptides-func against
the same model in plain PyTorch. `must` and `goal` are the times that this project set itself for an
H200.
"""

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console
from torch_geometric.data import Data

from graphmamba.bench import once_ms, peak_bytes
from graphmamba.data.catalog import Features, Task
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.sampler import Ids
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import precomputed
from graphmamba.environment import describe, resolve_device
from graphmamba.nn.config import ModelConfig
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gps import GPSLayer
from graphmamba.nn.graph_mamba import SelectivePath
from graphmamba.nn.model import GraphMamba, columns_read
from graphmamba.studies.report import table, write_json
from graphmamba.training.compile import compile_parts
from graphmamba.training.cuda_graph import CapturedForward
from graphmamba.training.evaluate import labelled_batch
from graphmamba.training.experiment import Experiment, Precision, load_experiment
from graphmamba.training.fit import make_optimizer
from graphmamba.training.losses import LOSSES
from graphmamba.training.step import CapturedStep, TrainStep

H200_TARGETS = {
    "peptides-func": (2.6, 1.6), "pascalvoc-sp": (3.15, 2.0), "malnet-tiny": (3.25, 2.1),
    "pattern": (2.65, 1.7), "cluster": (3.7, 2.4), "cifar10": (0.62, 0.45),
}  # fmt: skip
"""Milliseconds of a training step on an H200 with TF32: must, goal."""
PUBLISHED_LAYERS_MS = {"peptides-func": 26.5, "pascalvoc-sp": 68.8, "malnet-tiny": 88.4}
"""The published layers alone, forward and backward, on an H200: an earlier run with mamba-ssm 2.3,
four layers on Peptides-func. Of the others nobody has measured it."""
LARGE = (100_000, 300_000, 1_000_000)
"""Nodes of the graphs that are trained on as a whole."""
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
    """`operator`: the paper's layers as one operator each, encoder and head compiled, captured as
    CUDA graphs; `modules`: all compiled and captured; `captured`: the operator, nothing compiled;
    `launched`: not captured either; `reference`: in plain PyTorch."""
    graphs: int
    nodes: float
    """Of a batch, on average."""
    edges: float
    layers: int
    parameters: int
    train_ms: float
    evaluate_ms: float | None
    """None where it was not timed: plain PyTorch on a CPU takes minutes for all node orders."""
    peak_mib: float | None
    """Most that one step takes, run as Python says, beyond what is there between steps; of the
    batch that takes the most."""
    held_mib: float | None = None
    """What stays between steps: weights, the optimizer's numbers, work space of the products, and
    the memory of all captured steps; the graphs do not count."""
    timeline: list[list[object]] | None = None
    """Kernels of one captured step where they are asked for: start in microseconds, duration,
    stream, name."""


def draw_store(shape: StepShape, batch_size: int, seed: int = 0) -> tuple[Experiment, GraphStore]:
    """Draw graphs for some batches, with the columns that the experiment's model reads."""
    experiment = load_experiment(shape.benchmark, {"train.batch_size": batch_size})
    count, mean = shape.batches * batch_size, experiment.dataset_info.mean_nodes
    drawn = np.random.default_rng(seed).lognormal(-(shape.spread**2) / 2, shape.spread, count)
    sizes = (mean * drawn).round().clip(4, shape.longest).astype(int).tolist()
    # All of them are for training.
    split = torch.zeros(count, dtype=torch.int64)
    store = GraphStore.from_pyg(sized_graphs(experiment.dataset_info, sizes, seed), split)
    asked = columns_read(experiment.model, experiment.encoder)
    for part in asked.parts().values():
        made = precomputed(store.columns(), part)
        store = store.with_columns(nodes=made.nodes, pairs=made.pairs)
    return experiment, store


def measure_captured(
    shape: StepShape,
    device: torch.device,
    batch_size: int,
    *,
    kind: str = "operator",
    precision: Precision = "32-true",
    has_timeline: bool = False,
) -> StepTimes:
    """Time the step and the evaluation as CUDA graphs, batches made on the device included."""
    experiment, store = draw_store(shape, batch_size)
    store = store.to(device)
    # The graphs of a set that was timed before hold memory until they are collected.
    gc.collect()
    torch.cuda.empty_cache()
    begin = torch.cuda.memory_reserved()
    model, optim = experiment.build().to(device), experiment.optim
    if kind == "modules":
        for part in model.modules():
            if isinstance(part, GPSLayer):
                part.backend = "reference"
    if kind != "captured":
        compile_parts(model)
    optimizer = make_optimizer(model, optim, device, is_captured=True)
    batches = list(torch.arange(len(store)).split(batch_size))
    model.train()
    stream = torch.cuda.Stream(device)
    parts = model, optimizer, store, experiment
    peak = _peak_bytes(TrainStep(*parts, precision=precision).step, batches)
    step = CapturedStep(*parts, stream=stream, precision=precision, is_required=True)
    train_ms = _device_ms(step.step, batches)
    timeline = _timeline(partial(step.step, batches[0])) if has_timeline else None
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved() - begin
    ids = torch.arange(len(store))
    forward = CapturedForward(model, store, ids, batch_size, precision, stream)
    model.eval()
    evaluate_ms = _device_ms(forward.predict, batches)
    if precision != "32-true":
        kind = f"{kind}, {precision}"
    times = _times(kind, experiment, store, model, (train_ms, evaluate_ms), peak, held)
    return replace(times, timeline=timeline)


def _timeline(work: Callable[[], object]) -> list[list[object]]:
    """Kernels that PyTorch's profiler, which slows them a little, sees."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    found = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    found.sort(key=lambda each: each["ts"])
    return [
        [round(each["ts"] - found[0]["ts"], 1), each["dur"], each["args"]["stream"], each["name"]]
        for each in found
    ]


def measure_plain(
    shape: StepShape, device: torch.device, batch_size: int, *, is_reference: bool = False
) -> StepTimes:
    """Time the step without capturing it; `is_reference` takes plain PyTorch, on a CPU alone."""
    experiment, store = draw_store(shape, batch_size)
    store, model = store.to(device), experiment.build().to(device)
    if is_reference:
        take_references(model)
    optimizer = make_optimizer(model, experiment.optim, device, is_captured=False)
    train = TrainStep(model, optimizer, store, experiment).step
    level = experiment.dataset_info.task.level

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
    kind = "reference" if is_reference else "launched"
    return _times(kind, experiment, store, model, times, peak)


def take_references(model: GraphMamba) -> None:
    """Let plain PyTorch run every operation of a model on a CPU."""
    for part in model.modules():
        if isinstance(part, SelectivePath):
            part.options = replace(part.options, backend="reference")
        if isinstance(part, ExphormerStack | GatedGCN):
            part.backend = "reference"


def _peak_bytes(work: Callable[[Ids], object], batches: list[Ids]) -> int:
    """Most that the work on a batch takes beyond what is there without it."""
    return max(peak_bytes(partial(work, ids)) for ids in batches)


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
    batches = len(store) / experiment.train.batch_size
    return StepTimes(
        benchmark=experiment.dataset,
        kind=kind,
        graphs=experiment.train.batch_size,
        nodes=float(store.tables["nodes"].ptr[-1]) / batches,
        edges=float(store.tables["edges"].ptr[-1]) / batches,
        layers=experiment.model.layers,
        parameters=sum(each.numel() for each in model.parameters()),
        train_ms=times[0],
        evaluate_ms=times[1],
        peak_mib=None if peak is None else peak / 2**20,
        held_mib=None if held is None else held / 2**20,
    )


@dataclass(frozen=True)
class LargeStep:
    """One step on one graph."""

    nodes: int
    edges: int
    channels: int
    layers: int
    ms: float
    peak_gib: float


def measure_large(nodes: int, device: torch.device, edges_a_node: int = 10) -> LargeStep:
    """Time one full-batch step on one random graph: classes of nodes, d 64, three layers."""
    generator = torch.Generator(device).manual_seed(0)
    edges = nodes * edges_a_node
    target = torch.arange(nodes, device=device).repeat_interleave(edges_a_node)
    source = torch.randint(nodes, (edges,), generator=generator, device=device)
    graph = Data(
        x=torch.randn(nodes, 16, generator=generator, device=device),
        edge_index=torch.stack([source, target]),
        # edges lie in the order of their targets; this is the order of their sources
        source_order=source.argsort(stable=True),
        y=torch.randint(10, (nodes,), generator=generator, device=device),
    )
    task = Task("node", 10, "cross_entropy", "accuracy", classes=10)
    stack = ModelConfig(channels=64, layers=3)
    model = GraphMamba(Features(node_columns=16), task, stack).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    loss_of = LOSSES[task.loss]

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(graph), graph.y).backward()
        optimizer.step()

    step()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    peak = torch.cuda.max_memory_allocated() / 2**30
    return LargeStep(nodes, edges, 64, 3, sorted(times)[1], peak)


def main() -> None:
    """Measure, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--sets", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--large", nargs="*", type=int, default=LARGE, help="nodes of large graphs")
    parser.add_argument("--plain", nargs="*", default=list(SHAPES), choices=list(SHAPES),
                        help="sets whose steps are timed as Python says too")  # fmt: skip
    parser.add_argument("--kinds", nargs="*", default=["operator", "modules", "captured"])
    parser.add_argument("--precisions", nargs="*", default=["32-true"], help="of captured steps")
    parser.add_argument("--timelines", action="store_true", help="kernels of one captured step")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device, console = resolve_device(options.device), Console()
    times: list[StepTimes] = []
    large: list[LargeStep] = []
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        for name in options.sets:
            size = load_experiment(name).train.batch_size
            times += [
                measure_captured(
                    *(SHAPES[name], device, size),
                    kind=kind,
                    precision=precision,
                    has_timeline=options.timelines,
                )
                for kind in options.kinds
                for precision in options.precisions
            ]
            if name in options.plain:
                times.append(measure_plain(SHAPES[name], device, size))
            for one in times:
                if one.benchmark == name:
                    console.print(f"{name}: {one.kind} {one.train_ms:.3f} ms")
            # What is cut short leaves what it has.
            write_json(options.out, _content(device, options.commit, times, large))
        for nodes in options.large:
            large.append(measure_large(nodes, device))
            console.print(f"{nodes} nodes: {large[-1].ms:.1f} ms, {large[-1].peak_gib:.2f} GiB")
    else:
        # Plain PyTorch takes its time.
        shape = replace(SHAPES["peptides-func"], batches=1)
        times.append(measure_plain(shape, device, 32))
        times.append(measure_plain(shape, device, 32, is_reference=True))
    console.print(
        table(
            "Milliseconds a step",
            [
                *("set", "kind", "graphs", "nodes", "layers", "train", "must / goal", "evaluate"),
                *("MiB", "held"),
            ],
            (_row(one) for one in times),
        )
    )
    write_json(options.out, _content(device, options.commit, times, large))


def _content(
    device: torch.device, commit: str | None, times: list[StepTimes], large: list[LargeStep]
) -> dict[str, object]:
    return {
        "environment": describe(device, commit),
        "matmul": "tf32" if device.type == "cuda" else "float32",
        "times": times,
        "large": [asdict(one) for one in large],
        "h200_targets_ms": H200_TARGETS,
        "published_layers_ms": PUBLISHED_LAYERS_MS,
    }


def _row(one: StepTimes) -> list[str]:
    is_aimed = one.kind == "operator" and one.benchmark in H200_TARGETS
    targets = " / ".join(map(str, H200_TARGETS[one.benchmark])) if is_aimed else ""
    memory = ["" if size is None else f"{size:.0f}" for size in (one.peak_mib, one.held_mib)]
    evaluate = "" if one.evaluate_ms is None else f"{one.evaluate_ms:.3f}"
    return [
        *(one.benchmark, one.kind, str(one.graphs), f"{one.nodes:,.0f}", str(one.layers)),
        *(f"{one.train_ms:.3f}", targets, evaluate, *memory),
    ]


if __name__ == "__main__":
    main()

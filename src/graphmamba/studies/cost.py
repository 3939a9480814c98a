"""Operations, memory and time of a training step."""

import gc
import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Batch, Data
from torch_geometric.utils import subgraph

from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.sources import SOURCES, open_benchmark, place_of
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.degree_profile import degree_profiles
from graphmamba.data.transforms.precompute import Precompute, add_precomputed
from graphmamba.studies.flops import BatchSize, Flops, Form, count_flops, forward_flops
from graphmamba.training.evaluate import labels_of
from graphmamba.training.experiment import Experiment
from graphmamba.training.losses import LOSSES

MEASURES = {
    "cuda": "torch.cuda.max_memory_allocated",
    "cpu": "live tensor storage",
}
"""What the peak is, by the kind of device; model and batch are in it, and nothing else that was
there before the step. On a CPU it is the bytes of all tensors alive at the same time: the same on
every machine, but blind to what an operator takes for itself while it runs."""
GRANULE = 512
"""Bytes that PyTorch's allocator of a GPU rounds up to."""


class OverCapError(MemoryError):
    """More live tensors than the cap allows, on a device that does not enforce it by itself."""


OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
"""How running out of memory, or over the cap, looks from outside."""


# Memory: the most that a step holds at once, of the GPU, or of all tensors on a CPU.


@contextmanager
def capped(device: torch.device, cap: int) -> Iterator[None]:
    """Have a GPU reject to allocate more than the cap; on a CPU `peak_bytes` looks after it."""
    if device.type != "cuda":
        yield
        return
    whole = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / whole))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def release(device: torch.device) -> None:
    """Give back what nobody refers to any more, as after running out of memory."""
    gc.collect()
    # What a backward pass that broke off had still to do waits in autograd's queue, with its graph,
    # for the next pass on this device, which drops it first.
    torch.zeros((), device=device, requires_grad=True).neg().backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def peak_bytes(
    step: Callable[[], object],
    device: torch.device,
    resident: Iterable[Tensor] = (),
    cap: int | None = None,
) -> int:
    """Run a step and return the most memory that was held at once, as `MEASURES` says.

    Args:
        step: What is measured.
        device: Where it runs.
        resident: Tensors that are there before the step and stay. What else is there, such as
            other batches, is not in the peak.
        cap: Bytes beyond which a step on a CPU is stopped by an `OverCapError`.
    """
    if device.type == "cuda":
        release(device)
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in resident}
        own = sum(-(-each.nbytes() // GRANULE) * GRANULE for each in storages.values())
        others = torch.cuda.memory_allocated(device) - own
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - max(0, others)
    live = LiveStorage(cap)
    for tensor in resident:
        live.follow(tensor)
    with live:
        step()
    return live.peak


class LiveStorage(TorchDispatchMode):
    """Follows the bytes of all tensors that operators return, until the last view of them dies.

    Args:
        cap: Bytes beyond which an operator raises; None for no end.
    """

    def __init__(self, cap: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.peak, self.cap = 0, 0, cap
        self._known: set[int] = set()

    def follow(self, tensor: Tensor) -> None:
        """Count a tensor's storage, once, as long as it lives."""
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._known or not size:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator and count what it returns."""
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self.follow(value)
        if self.cap is not None and self.now > self.cap:
            raise OverCapError(f"{self.now:,} bytes are more than the cap of {self.cap:,}")
        return out


# A training step of one model.


@dataclass(frozen=True)
class Cost:
    """What one model needs for one graph, on average over some batches."""

    parameters: int
    batch_size: int
    batches: int
    nodes: float
    """Of a graph."""
    edges: float
    """Of a graph, directed."""
    forward_flops: float
    """By formula; known also where the step does not fit."""
    products: float
    scan: float
    elementwise: float
    """The three kinds of it."""
    counted_flops: float | None
    """Of the same forward pass, counted while it ran; None where it did not fit."""
    peak_bytes: int | None
    """Most memory of a training step; None where it did not fit."""
    memory_measure: str
    """How that was measured."""
    ms: float | None
    """Of a training step, for one graph; None where it did not fit."""
    original_flops: float
    """By formula, as the code of the model's authors would do it."""

    @property
    def bytes_per_graph(self) -> float | None:
        """Peak divided by the batch size, as the paper has it."""
        return None if self.peak_bytes is None else self.peak_bytes / self.batch_size


class Subject:
    """A model with graphs that carry what it reads, ready to be trained on any of them.

    Args:
        experiment: Which model, and its loss.
        store_of: Gives the graphs with the columns that a model asks for.
        device: Where it runs.
    """

    def __init__(
        self,
        experiment: Experiment,
        store_of: Callable[[Precompute], GraphStore],
        device: torch.device,
    ) -> None:
        torch.manual_seed(0)
        self.device, self.task = device, experiment.dataset_info.task
        self.loss = LOSSES[experiment.loss]
        self.model = experiment.build(0).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.store = store_of(self.model.precompute).to(device)

    def batch(self, first: int, size: int) -> Batch:
        """Take `size` graphs from the `first` on, beginning again at the end."""
        ids = torch.arange(first, first + size) % len(self.store)
        return self.store.batch(ids, by_source=True)

    def train(self, batch: Data) -> None:
        """Make one step: forward, backward, update."""
        self.optimizer.zero_grad()
        prediction = self.model(batch, check=False)
        self.loss(prediction, labels_of(batch, self.task.level, ())).backward()
        self.optimizer.step()

    def resident(self, batch: Data) -> list[Tensor]:
        """List the tensors that are there between two steps."""
        parameters = [*self.model.parameters(), *self.model.buffers()]
        gradients = [each.grad for each in parameters if each.grad is not None]
        states = chain.from_iterable(each.values() for each in self.optimizer.state.values())
        columns: list[Any] = [*batch.to_dict().values(), *states]
        return [*parameters, *gradients, *(each for each in columns if isinstance(each, Tensor))]

    def peak(self, batch: Data, cap: int | None) -> int:
        """Most memory of a step, gradients and the optimiser's state included."""
        # The first step makes the optimiser's state and compiles what has to be compiled.
        peak_bytes(lambda: self.train(batch), self.device, self.resident(batch), cap)
        return peak_bytes(lambda: self.train(batch), self.device, self.resident(batch), cap)

    def seconds(self, batch: Data, repeats: int) -> float:
        """Time of a step, the median of some; the steps before have warmed up."""
        taken = []
        for _ in range(repeats):
            self._wait()
            start = time.perf_counter()
            self.train(batch)
            self._wait()
            taken.append(time.perf_counter() - start)
        return median(taken)

    def forget(self) -> None:
        """Give back all memory that is not needed between two steps."""
        self.optimizer.zero_grad()
        release(self.device)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def measure_cost(
    subject: Subject, batch_size: int, batches: int, cap: int | None = None, repeats: int = 3
) -> Cost:
    """Measure batches of the subject's graphs; running out of memory is an outcome as well.

    Args:
        subject: Model and graphs.
        batch_size: Graphs of a batch.
        batches: Number of batches.
        cap: Bytes that a step may take on a CPU; on a GPU see `capped`.
        repeats: Steps that are timed with each batch.
    """
    made = [subject.batch(number * batch_size, batch_size) for number in range(batches)]
    sizes, graphs = [BatchSize.of(batch) for batch in made], batch_size * batches

    def flops(form: Form) -> Flops:
        return sum((forward_flops(subject.model, size, form) for size in sizes), start=Flops())

    peak: int | None = None
    counted: float | None = None
    ms: float | None = None
    with suppress(*OUT_OF_MEMORY):
        peaks = [subject.peak(batch, cap) for batch in made]
        works = [count_flops(partial(subject.model, batch, check=False)) for batch in made]
        seconds = [subject.seconds(batch, repeats) for batch in made]
        peak, ms = max(peaks), 1e3 * sum(seconds) / graphs
        counted = sum(work.total for work in works) / graphs
    if peak is None:
        # out here the exception is gone, and with it the tensors of the frames it came through
        subject.forget()
    here = flops("here")
    return Cost(
        parameters=sum(parameter.numel() for parameter in subject.model.parameters()),
        batch_size=batch_size,
        batches=batches,
        nodes=sum(size.nodes for size in sizes) / graphs,
        edges=sum(size.edges for size in sizes) / graphs,
        forward_flops=here.total / graphs,
        products=here.products / graphs,
        scan=here.scan / graphs,
        elementwise=here.elementwise / graphs,
        counted_flops=counted,
        peak_bytes=peak,
        memory_measure=MEASURES[subject.device.type],
        ms=ms,
        original_flops=flops("original").total / graphs,
    )


@dataclass(frozen=True)
class LargestBatch:
    """The largest power of two whose batches fit."""

    batch_size: int
    """0 where not even one graph does."""
    peak_bytes: int | None
    """Memory at that size."""
    is_limit: bool
    """Whether the search ended there without running out of memory."""


def largest_batch(subject: Subject, limit: int, cap: int | None = None) -> LargestBatch:
    """Double the batch until memory runs out or the limit is reached."""
    best, size = LargestBatch(0, None, False), 1
    with suppress(*OUT_OF_MEMORY):
        while size <= limit:
            peak = subject.peak(subject.batch(0, size), cap)
            best = LargestBatch(size, peak, is_limit=2 * size > limit)
            size *= 2
    subject.forget()
    return best


# Graphs of a data set, or of its kind.


SPREADS = {
    "malnet-tiny": (0.9, 5_000),
    "peptides-func": (0.5, 444),
    "pascalvoc-sp": (0.03, 500),
    "pcqm-contact": (0.2, 53),
    "cluster": (0.2, 190),
}
"""How the sizes of the graphs that stand for a data set are spread about its mean: the deviation
of their logarithm, and the largest."""
ALWAYS_GENERATED = {"pcqm-contact"}
"""Its labelled pairs are drawn again for every epoch; here the size of the graphs is what
counts."""


@dataclass(frozen=True)
class StudyGraphs:
    """Graphs, and where they come from in words."""

    graphs: list[Data]
    source: str


@cache
def study_graphs(
    name: str, count: int, data_dir: Path | None = None, scale: float = 1.0
) -> StudyGraphs:
    """Choose training graphs of a benchmark at random, or make up graphs of its kind and size.

    Args:
        name: The benchmark, one of `SPREADS`.
        count: Number of graphs.
        data_dir: Where sets are kept; None for the default place.
        scale: Size of the graphs over the benchmark's own; any but 1 is always made up.
    """
    if scale == 1 and name not in ALWAYS_GENERATED:
        if place_of(name, data_dir, 0).exists():
            return _chosen(open_benchmark(name, data_dir, 0), count)
        draw = SOURCES[name].generate
        if draw is not None:
            return _chosen(GraphStore(draw((count, 1, 1), 0)), count)
    graphs = sized_graphs(CATALOG[name], draw_sizes(name, count, scale), 0)
    shrunk = "" if scale == 1 else f", {scale:g} times as large"
    return StudyGraphs(graphs, f"generated like {CATALOG[name].title}{shrunk}")


def draw_sizes(name: str, count: int, scale: float = 1.0) -> list[int]:
    """Draw numbers of nodes whose mean and spread are about those of a benchmark."""
    (deviation, largest), generator = SPREADS[name], torch.Generator().manual_seed(0)
    mean = math.log(scale * CATALOG[name].mean_nodes) - deviation**2 / 2
    drawn = torch.randn(count, generator=generator) * deviation + mean
    return drawn.exp().round().clamp(2, max(2, int(scale * largest))).long().tolist()


def _chosen(store: GraphStore, count: int) -> StudyGraphs:
    training = store.split_ids("train")
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))
    # a small set is gone through again
    ids = training[order[torch.arange(count) % len(training)]]
    graphs = [store[int(each)] for each in ids]
    for graph in graphs:
        # graphs without features have their local degree profile, that of the whole graph
        if graph.x is None:
            graph.x = degree_profiles(columns_of([graph]))
    return StudyGraphs(graphs, store.source)


@cache
def study_store(
    name: str, count: int, data_dir: Path | None, scale: float, fraction: float, asked: Precompute
) -> GraphStore:
    """The same graphs with a share of their nodes, and the columns that a model asks for."""
    generator = torch.Generator().manual_seed(0)
    graphs = study_graphs(name, count, data_dir, scale).graphs
    kept = [subsample(graph, fraction, generator) for graph in graphs]
    return GraphStore(add_precomputed(columns_of(kept), replace(asked, seed=0)))


def subsample(graph: Data, fraction: float, generator: torch.Generator) -> Data:
    """Keep a share of the nodes, chosen at random, in their order, and the edges among them.

    Features stay what they were in the whole graph, and a graph that would be left with less than
    two nodes stays whole, both as in the paper's study.
    """
    nodes = int(graph.num_nodes or 0)
    kept = int(nodes * fraction)
    if kept <= 1 or kept >= nodes:
        return graph
    chosen = torch.randperm(nodes, generator=generator)[:kept].sort().values
    edge_index, _ = subgraph(chosen, graph.edge_index, relabel_nodes=True, num_nodes=nodes)
    return Data(x=graph.x[chosen], edge_index=edge_index, y=graph.y)

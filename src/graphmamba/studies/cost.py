"""Operations, memory and time of a training step, and the graphs that it is measured on."""

import gc
import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
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
from graphmamba.studies.flops import (
    BatchSize,
    Flops,
    Form,
    count_flops,
    forward_flops,
    run_by_modules,
)
from graphmamba.training.evaluate import labels_of
from graphmamba.training.experiment import Experiment
from graphmamba.training.losses import LOSSES

MEMORY_MEASURES = {"cuda": "torch.cuda.max_memory_allocated", "cpu": "live tensor storage"}
"""How peak memory is measured on each kind of device. On a CPU it is the bytes of all live tensors:
the same on every machine, but without the temporary memory inside an operator."""
CUDA_BLOCK = 512
"""Bytes to which PyTorch's CUDA allocator rounds up."""


class MemoryCapError(MemoryError):
    """A step on a CPU holds more than it may; a GPU raises an error of its own."""


OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


@contextmanager
def limited_memory(device: torch.device, cap: int) -> Iterator[None]:
    """Limit the memory of this process on a GPU; on a CPU, `peak_bytes` enforces its `cap`."""
    if device.type != "cuda":
        yield
        return
    whole = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / whole))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def release_memory(device: torch.device) -> None:
    """Free everything that is no longer referenced, also after running out of memory."""
    gc.collect()
    # The rest of a failed backward pass stays in autograd's queue, with its graph, until the next
    # pass on this device.
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
    """Run a step and return its peak memory.

    Args:
        step: What is measured.
        device: Where it runs.
        resident: Tensors that exist before the step and count; others do not.
        cap: On a CPU, raise `MemoryCapError` beyond this number of bytes.
    """
    if device.type == "cuda":
        release_memory(device)
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in resident}
        own = sum(-(-each.nbytes() // CUDA_BLOCK) * CUDA_BLOCK for each in storages.values())
        others = torch.cuda.memory_allocated(device) - own
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - max(0, others)
    live = LiveTensors(cap)
    for tensor in resident:
        live.add(tensor)
    with live:
        step()
    return live.peak


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of all tensors returned by operators, until their storage is freed.

    Args:
        cap: Bytes beyond which an operator raises `MemoryCapError`.
    """

    def __init__(self, cap: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.peak, self.cap = 0, 0, cap
        self._known: set[int] = set()

    def add(self, tensor: Tensor) -> None:
        """Count the storage of a tensor, once for all its views."""
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._known or not size:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator and count its results."""
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self.add(value)
        if self.cap is not None and self.now > self.cap:
            raise MemoryCapError(f"{self.now:,} bytes are more than the cap of {self.cap:,}")
        return out


class Workload:
    """A model in training and its graphs.

    Args:
        experiment: Model and loss.
        store_of: Returns the graphs with the columns that the model reads.
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
        """Return `size` graphs from the `first` on, starting again after the last one."""
        ids = torch.arange(first, first + size) % len(self.store)
        return self.store.batch(ids, by_source=True)

    def train(self, batch: Data) -> None:
        """Run forward pass, backward pass and update."""
        self.optimizer.zero_grad()
        prediction = self.model(batch, check=False)
        self.loss(prediction, labels_of(batch, self.task.level, ())).backward()
        self.optimizer.step()

    def resident(self, batch: Data) -> list[Tensor]:
        """List the tensors that exist between two steps."""
        parameters = [*self.model.parameters(), *self.model.buffers()]
        found: list[Any] = [*parameters, *(each.grad for each in parameters)]
        found += batch.to_dict().values()
        for state in self.optimizer.state.values():
            found += state.values()
        return [each for each in found if isinstance(each, Tensor)]

    def peak(self, batch: Data, cap: int | None) -> int:
        """Peak memory of a step, with gradients and optimizer state."""
        # the first step compiles kernels and makes the optimizer state
        peak_bytes(lambda: self.train(batch), self.device, self.resident(batch), cap)
        return peak_bytes(lambda: self.train(batch), self.device, self.resident(batch), cap)

    def seconds(self, batch: Data, repeats: int) -> float:
        """Median time of a step."""
        times = []
        for _ in range(repeats):
            self._synchronize()
            start = time.perf_counter()
            self.train(batch)
            self._synchronize()
            times.append(time.perf_counter() - start)
        return median(times)

    def release(self) -> None:
        """Free all memory that is not needed between two steps."""
        self.optimizer.zero_grad()
        release_memory(self.device)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class Cost:
    """Cost of a model per graph, averaged over some batches.

    What has to be run is None where it does not fit into memory.
    """

    parameters: int
    batch_size: int
    batches: int
    nodes: float
    edges: float
    """Directed edges."""
    forward_flops: float
    """Operations of a forward pass by formula: the sum of the next three."""
    products: float
    scan: float
    elementwise: float
    counted_flops: float | None
    """The same, counted while it ran."""
    peak_bytes: int | None
    """Peak memory of a training step, of the whole batch."""
    memory_measure: str
    ms: float | None
    """Time of a training step."""
    original_flops: float
    """Operations by formula, of the code of the model's authors."""


def measure_cost(
    workload: Workload, batch_size: int, batches: int, cap: int | None = None, repeats: int = 3
) -> Cost:
    """Measure the cost of some batches.

    Args:
        workload: Model and graphs.
        batch_size: Graphs per batch.
        batches: Number of batches.
        cap: Memory limit of a step on a CPU; on a GPU see `limited_memory`.
        repeats: Timed steps per batch.
    """
    made = [workload.batch(number * batch_size, batch_size) for number in range(batches)]
    sizes, graphs = [BatchSize.of(batch) for batch in made], batch_size * batches

    def flops(form: Form) -> Flops:
        return sum((forward_flops(workload.model, size, form) for size in sizes), start=Flops())

    peak: int | None = None
    counted: float | None = None
    ms: float | None = None
    with suppress(*OUT_OF_MEMORY):
        peaks = [workload.peak(batch, cap) for batch in made]
        with run_by_modules(workload.model):
            passes = [count_flops(partial(workload.model, batch, check=False)) for batch in made]
        seconds = [workload.seconds(batch, repeats) for batch in made]
        peak, ms = max(peaks), 1e3 * sum(seconds) / graphs
        counted = sum(one.total for one in passes) / graphs
    if peak is None:
        # only here the exception is gone, with the tensors that its frames referred to
        workload.release()
    here = flops("here")
    return Cost(
        parameters=sum(parameter.numel() for parameter in workload.model.parameters()),
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
        memory_measure=MEMORY_MEASURES[workload.device.type],
        ms=ms,
        original_flops=flops("original").total / graphs,
    )


@dataclass(frozen=True)
class LargestBatch:
    """The largest power of two that fits as a batch size."""

    batch_size: int
    """0 if not even one graph fits."""
    peak_bytes: int | None
    is_limit: bool
    """Whether the search reached its limit without running out of memory."""


def largest_batch(workload: Workload, limit: int, cap: int | None = None) -> LargestBatch:
    """Double the batch size until memory runs out or the limit is reached."""
    best, size = LargestBatch(0, None, False), 1
    with suppress(*OUT_OF_MEMORY):
        while size <= limit:
            peak = workload.peak(workload.batch(0, size), cap)
            best = LargestBatch(size, peak, is_limit=2 * size > limit)
            size *= 2
    workload.release()
    return best


GRAPH_SIZES = {
    "malnet-tiny": (0.9, 5_000),
    "peptides-func": (0.5, 444),
    "pascalvoc-sp": (0.03, 500),
    "pcqm-contact": (0.2, 53),
    "cluster": (0.2, 190),
}
"""Nodes of generated graphs: standard deviation of the logarithm, and maximum."""
ALWAYS_GENERATED = {"pcqm-contact"}
"""Its negative pairs are sampled anew in every epoch; here only the size of the graphs matters."""


@cache
def study_graphs(
    name: str, count: int, data_dir: Path | None = None, scale: float = 1.0
) -> tuple[list[Data], str]:
    """Sample training graphs of a data set, or generate graphs of its size; also their source.

    Args:
        name: The data set, one of `GRAPH_SIZES`.
        count: Number of graphs.
        data_dir: Directory of data sets; None for the default one.
        scale: Size of the graphs relative to the data set's; any but 1 is generated.
    """
    if scale == 1 and name not in ALWAYS_GENERATED:
        if place_of(name, data_dir, 0).exists():
            return _sampled(open_benchmark(name, data_dir, 0), count)
        generate = SOURCES[name].generate
        if generate is not None:
            return _sampled(GraphStore(generate((count, 1, 1), 0)), count)
    graphs = sized_graphs(CATALOG[name], generate_sizes(name, count, scale), 0)
    scaled = "" if scale == 1 else f", {scale:g} times as large"
    return graphs, f"generated like {CATALOG[name].title}{scaled}"


def generate_sizes(name: str, count: int, scale: float = 1.0) -> list[int]:
    """Generate log-normal numbers of nodes with about the mean and spread of a data set."""
    (deviation, largest), generator = GRAPH_SIZES[name], torch.Generator().manual_seed(0)
    mean = math.log(scale * CATALOG[name].mean_nodes) - deviation**2 / 2
    sizes = (torch.randn(count, generator=generator) * deviation + mean).exp().round()
    return sizes.clamp(2, max(2, int(scale * largest))).long().tolist()


def _sampled(store: GraphStore, count: int) -> tuple[list[Data], str]:
    training = store.split_ids("train")
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))
    # a small set is repeated
    ids = training[order[torch.arange(count) % len(training)]]
    graphs = [store[int(each)] for each in ids]
    for graph in graphs:
        # degree profiles stand for missing features, here before nodes are left out
        if graph.x is None:
            graph.x = degree_profiles(columns_of([graph]))
    return graphs, store.source


@cache
def study_store(
    name: str, count: int, data_dir: Path | None, scale: float, fraction: float, asked: Precompute
) -> GraphStore:
    """Return the graphs of `study_graphs` with a share of their nodes and precomputed columns."""
    generator = torch.Generator().manual_seed(0)
    graphs, _ = study_graphs(name, count, data_dir, scale)
    kept = [sample_nodes(graph, fraction, generator) for graph in graphs]
    return GraphStore(add_precomputed(columns_of(kept), replace(asked, seed=0)))


def sample_nodes(graph: Data, fraction: float, generator: torch.Generator) -> Data:
    """Keep a random share of the nodes, in their order, and the edges among them.

    As in the paper's study, features stay those of the whole graph, and a graph that would keep
    fewer than two nodes stays whole.
    """
    nodes = int(graph.num_nodes or 0)
    kept = int(nodes * fraction)
    if kept <= 1 or kept >= nodes:
        return graph
    chosen = torch.randperm(nodes, generator=generator)[:kept].sort().values
    edge_index, _ = subgraph(chosen, graph.edge_index, relabel_nodes=True, num_nodes=nodes)
    return Data(x=graph.x[chosen], edge_index=edge_index, y=graph.y)

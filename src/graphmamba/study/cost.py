"""What a model needs for its batches: operations, memory and time of a training step."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.checks import check_least
from graphmamba.config import Experiment
from graphmamba.data.columns import topology_of
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flops import Flops, Form, count_flops
from graphmamba.study.memory import MEASURES, OUT_OF_MEMORY, peak_bytes, release
from graphmamba.study.model_flops import forward_flops
from graphmamba.task.losses import LOSSES
from graphmamba.task.target import target_of

OUT = "OOM"
"""What stands in a table where memory ran out."""


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
    original_flops: float | None = None
    """By formula, as the code of the model's authors would do it; None in rows that were kept
    before it was counted."""

    @property
    def bytes_per_graph(self) -> float | None:
        """Peak divided by the batch size, as the paper has it."""
        return None if self.peak_bytes is None else self.peak_bytes / self.batch_size


class Shelf:
    """Graphs with what models read of them, computed once for all that read the same.

    Args:
        graphs: The graphs.
        seed: What expander graphs are drawn from.
    """

    def __init__(self, graphs: Sequence[Data], seed: int = 0) -> None:
        self._graphs, self._seed = graphs, seed
        self._stores: dict[Precompute, GraphStore] = {}

    def store(self, asked: Precompute) -> GraphStore:
        """Return the graphs with just these columns."""
        if asked not in self._stores:
            generator = torch.Generator().manual_seed(self._seed)
            read = [add_columns(graph, asked, generator) for graph in self._graphs]
            self._stores[asked] = GraphStore.from_pyg(read)
        return self._stores[asked]


class Subject:
    """A model with graphs that carry what it reads, ready to be trained on any of them.

    Args:
        experiment: Which model, and its loss.
        shelf: Graphs to make batches of.
        device: Where it runs.
        seed: What its weights are drawn from.
    """

    def __init__(
        self, experiment: Experiment, shelf: Shelf, device: torch.device, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.device, self.task = device, experiment.data.task
        self.loss = LOSSES[experiment.loss]
        self.model = experiment.build(seed).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.store = shelf.store(self.model.precompute).to(device)

    @property
    def parameters(self) -> int:
        """Numbers that are learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def batch(self, first: int, size: int) -> Batch:
        """Take `size` graphs from the `first` on, beginning anew at the end."""
        ids = torch.arange(first, first + size) % len(self.store)
        return self.store.batch(ids, by_source=True)

    def batches(self, size: int, count: int) -> list[Batch]:
        """Take as many batches of that size, one after another."""
        return [self.batch(number * size, size) for number in range(count)]

    def train(self, batch: Data) -> None:
        """Make one step: forward, backward, update."""
        self.optimizer.zero_grad()
        prediction = self.model(batch, check=False)
        topology = topology_of(batch)
        target = target_of(batch, self.task.level, topology.batch, topology.num_graphs)
        self.loss(prediction, target).backward()
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
        return median(self._once(batch) for _ in range(repeats))

    def forget(self) -> None:
        """Give back all memory that is not needed between two steps."""
        self.optimizer.zero_grad()
        release(self.device)

    def _once(self, batch: Data) -> float:
        self._wait()
        start = time.perf_counter()
        self.train(batch)
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class _Measured:
    counted: int
    peak: int
    seconds: float


def measure_cost(
    subject: Subject, batch_size: int, batches: int, cap: int | None = None, repeats: int = 3
) -> Cost:
    """Measure batches of the subject's graphs; running out of memory is an outcome as well.

    Args:
        subject: Model and graphs.
        batch_size: Graphs of a batch.
        batches: Number of batches.
        cap: Bytes that a step may take on a CPU; on a GPU see `memory.capped`.
        repeats: Steps that are timed with each batch.
    """
    made = subject.batches(batch_size, batches)
    sizes = [BatchSize.of(batch) for batch in made]
    flops, original = _work(subject, sizes, "here"), _work(subject, sizes, "original")
    found = _measure(subject, made, cap, repeats)
    graphs = batch_size * batches
    return Cost(
        parameters=subject.parameters,
        batch_size=batch_size,
        batches=batches,
        nodes=sum(size.nodes for size in sizes) / graphs,
        edges=sum(size.edges for size in sizes) / graphs,
        forward_flops=flops.total / graphs,
        products=flops.products / graphs,
        scan=flops.scan / graphs,
        elementwise=flops.elementwise / graphs,
        counted_flops=None if found is None else found.counted / graphs,
        peak_bytes=None if found is None else found.peak,
        memory_measure=MEASURES[subject.device.type],
        ms=None if found is None else 1e3 * found.seconds / graphs,
        original_flops=original.total / graphs,
    )


def original_flops_of(subject: Subject, batch_size: int, batches: int) -> float:
    """Find what the original code would do for one graph of the same batches; nothing is run."""
    sizes = [BatchSize.of(batch) for batch in subject.batches(batch_size, batches)]
    return _work(subject, sizes, "original").total / (batch_size * batches)


def _work(subject: Subject, sizes: Sequence[BatchSize], form: Form) -> Flops:
    return sum((forward_flops(subject.model, size, form) for size in sizes), start=Flops())


def _measure(
    subject: Subject, batches: Sequence[Batch], cap: int | None, repeats: int
) -> _Measured | None:
    """Measure; None where memory runs out, of which nothing is left behind."""
    with suppress(*OUT_OF_MEMORY):
        peak = max(subject.peak(batch, cap) for batch in batches)
        counted = sum(_count(subject, batch) for batch in batches)
        seconds = sum(subject.seconds(batch, repeats) for batch in batches)
        return _Measured(counted, peak, seconds)
    # Out here the exception is gone, and with it the tensors of the frames that it came through.
    subject.forget()
    return None


def _count(subject: Subject, batch: Batch) -> int:
    return count_flops(lambda: subject.model(batch, check=False)).total


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
    check_least("limit", limit, 1)
    best, size = LargestBatch(0, None, False), 1
    with suppress(*OUT_OF_MEMORY):
        while size <= limit:
            peak = subject.peak(subject.batch(0, size), cap)
            best = LargestBatch(size, peak, is_limit=2 * size > limit)
            size *= 2
    subject.forget()
    return best

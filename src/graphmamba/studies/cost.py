"""What a model needs for its batches: operations, memory and time of a training step."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import subgraph

from graphmamba.checks import check_least
from graphmamba.data.batch import topology_of
from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.sources import SOURCES, open_benchmark, place_of
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.degree_profile import degree_profiles
from graphmamba.data.transforms.precompute import Precompute, add_precomputed
from graphmamba.errors import UserError
from graphmamba.studies.flops import BatchSize, Flops, Form, count_flops, forward_flops
from graphmamba.studies.memory import MEASURES, OUT_OF_MEMORY, peak_bytes, release
from graphmamba.training.experiment import Experiment
from graphmamba.training.losses import LOSSES, target_of

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
    original_flops: float
    """By formula, as the code of the model's authors would do it."""

    @property
    def bytes_per_graph(self) -> float | None:
        """Peak divided by the batch size, as the paper has it."""
        return None if self.peak_bytes is None else self.peak_bytes / self.batch_size


class PrecomputedGraphs:
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
            asked_by_seed = replace(asked, seed=self._seed)
            self._stores[asked] = GraphStore(
                add_precomputed(columns_of(self._graphs), asked_by_seed)
            )
        return self._stores[asked]


class Subject:
    """A model with graphs that carry what it reads, ready to be trained on any of them.

    Args:
        experiment: Which model, and its loss.
        graphs: Graphs to make batches of.
        device: Where it runs.
        seed: What its weights are drawn from.
    """

    def __init__(
        self, experiment: Experiment, graphs: PrecomputedGraphs, device: torch.device, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.device, self.task = device, experiment.dataset_info.task
        self.loss = LOSSES[experiment.loss]
        self.model = experiment.build(seed).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.store = graphs.store(self.model.precompute).to(device)

    @property
    def parameters(self) -> int:
        """Numbers that are learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def batch(self, first: int, size: int) -> Batch:
        """Take `size` graphs from the `first` on, beginning again at the end."""
        ids = torch.arange(first, first + size) % len(self.store)
        return self.store.batch(ids, by_source=True)

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
        cap: Bytes that a step may take on a CPU; on a GPU see `memory.capped`.
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
        parameters=subject.parameters,
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
    check_least("limit", limit, 1)
    best, size = LargestBatch(0, None, False), 1
    with suppress(*OUT_OF_MEMORY):
        while size <= limit:
            peak = subject.peak(subject.batch(0, size), cap)
            best = LargestBatch(size, peak, is_limit=2 * size > limit)
            size *= 2
    subject.forget()
    return best


@dataclass(frozen=True)
class Spread:
    """How the sizes of a set's graphs are spread about their mean: log-normal, with an end."""

    deviation: float
    """Of the logarithm."""
    largest: int


SPREADS = {
    "malnet-tiny": Spread(0.9, 5_000),
    "peptides-func": Spread(0.5, 444),
    "pascalvoc-sp": Spread(0.03, 500),
    "pcqm-contact": Spread(0.2, 53),
    "cluster": Spread(0.2, 190),
}
"""Sets that graphs can be generated for."""
ALWAYS_GENERATED = {"pcqm-contact"}
"""Its labelled pairs are drawn again for every epoch; here the size of the graphs is what
counts."""


@dataclass(frozen=True)
class StudyGraphs:
    """Graphs, and where they come from in words."""

    graphs: list[Data]
    source: str

    def subsampled(self, fraction: float) -> list[Data]:
        """Keep a share of each graph's nodes, as `subsample` does."""
        generator = torch.Generator().manual_seed(0)
        return [subsample(graph, fraction, generator) for graph in self.graphs]


def study_graphs(
    name: str, count: int, data_dir: Path | None = None, seed: int = 0, scale: float = 1.0
) -> StudyGraphs:
    """Choose training graphs of a benchmark at random, or make up graphs of its kind and size.

    Args:
        name: The benchmark, one of `SPREADS`.
        count: Number of graphs.
        data_dir: Where sets are kept; None for the default place.
        seed: Of the choice and of what is drawn.
        scale: Size of the graphs over the benchmark's own; any but 1 is always made up.
    """
    check_least("count", count, 1)
    if name not in SPREADS:
        raise UserError(f"name must be one of {', '.join(SPREADS)}, got {name!r}")
    if scale == 1 and name not in ALWAYS_GENERATED:
        if place_of(name, data_dir, 0).exists():
            return _chosen(open_benchmark(name, data_dir, 0), count, seed)
        draw = SOURCES[name].generate
        if draw is not None:
            return _chosen(GraphStore(draw((count, 1, 1), seed)), count, seed)
    sizes = draw_sizes(name, count, seed, scale)
    graphs = sized_graphs(CATALOG[name], sizes, seed)
    shrunk = "" if scale == 1 else f", {scale:g} times as large"
    return StudyGraphs(graphs, f"generated like {CATALOG[name].title}{shrunk}")


def draw_sizes(name: str, count: int, seed: int = 0, scale: float = 1.0) -> list[int]:
    """Draw numbers of nodes whose mean and spread are about those of a benchmark."""
    spread, generator = SPREADS[name], torch.Generator().manual_seed(seed)
    mean = math.log(scale * CATALOG[name].mean_nodes) - spread.deviation**2 / 2
    drawn = torch.randn(count, generator=generator) * spread.deviation + mean
    largest = max(2, int(scale * spread.largest))
    return drawn.exp().round().clamp(2, largest).long().tolist()


def _chosen(store: GraphStore, count: int, seed: int) -> StudyGraphs:
    training = store.split_ids("train")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(training), generator=generator)
    # a small set is gone through again
    ids = training[order[torch.arange(count) % len(training)]]
    return StudyGraphs([_with_features(store[int(each)]) for each in ids], store.source)


def _with_features(graph: Data) -> Data:
    """Graphs without features have their local degree profile, that of the whole graph."""
    if graph.x is None:
        graph.x = degree_profiles(columns_of([graph]))
    return graph


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

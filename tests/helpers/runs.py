"""Runs that take a moment: small sets, a small model, and what two runs can be compared by."""

import math
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from graphmamba.data.catalog import Level
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import add_columns
from graphmamba.nn.model import columns_read
from graphmamba.training.checkpoint import read_tensors
from graphmamba.training.experiment import Experiment, load_experiment
from graphmamba.training.progress import EpochRecord, Reporter, StartRecord, StepRecord
from graphmamba.training.run_dir import RunResult, read_rows
from tests.helpers.synthetic import synthetic_graphs

TINY = {
    "model.channels": 8,
    "model.layers": 1,
    "encoder.laplacian": None,
    "train.batch_size": 4,
    "train.epochs": 3,
    "optim.warmup": 1,
    "optim.lr": 1e-2,
}
TIMES = {"train_seconds", "seconds", "graphs_per_second", "memory"}
"""Columns that differ between two runs that are otherwise the same."""


def tiny_experiment(name: str = "mnist/graph-mamba", **overrides: object) -> Experiment:
    """A published experiment with one narrow layer and few epochs."""
    return load_experiment(name, {**TINY, **overrides})


def tiny_store(
    experiment: Experiment, train: int = 14, others: int = 5, nodes: tuple[int, int] = (3, 7)
) -> GraphStore:
    """Random graphs of the experiment's kind, the training set first, with what its model reads."""
    graphs = synthetic_graphs(experiment.dataset_info, train + 2 * others, nodes=nodes)
    asked = columns_read(experiment.model, experiment.encoder)
    split = torch.repeat_interleave(torch.arange(3), torch.tensor([train, others, others]))
    return GraphStore.from_pyg([add_columns(each, asked) for each in graphs], split)


def with_gaps(store: GraphStore, level: Level) -> GraphStore:
    """The same graphs without a third of their labels, and every third one without any."""
    columns = store.columns()
    pairs = columns.pairs.get("edge_label_index")
    if level == "link" and pairs is not None:
        place, name, ptr = pairs.columns, "edge_label", pairs.ptr
    elif level == "node":
        place, name, ptr = columns.nodes, "y", columns.node_ptr
    else:
        place, name, ptr = columns.graphs, "y", torch.arange(len(store) + 1)
    label = place[name]
    is_gone = (torch.arange(label.numel()) % 3 == 1).view(label.shape)
    for graph in range(0, len(store), 3):
        is_gone[ptr[graph] : ptr[graph + 1]] = True
    place[name] = label.masked_fill(is_gone, math.nan if label.is_floating_point() else -1)
    return GraphStore(columns)


def without_labels(store: GraphStore, split: str) -> GraphStore:
    """The same graphs, none of which in this split has a label."""
    columns, ids = store.columns(), store.split_ids(split)
    label = columns.graphs["y"].clone()
    label[ids] = math.nan if label.is_floating_point() else -1
    columns.graphs["y"] = label
    return GraphStore(columns)


class Notes(Reporter):
    """Writes down all that it is told, and may do something at a step."""

    def __init__(self, at_step: dict[int, Callable[[], None]] | None = None) -> None:
        self.starts: list[StartRecord] = []
        self.steps: list[StepRecord] = []
        self.epochs: list[EpochRecord] = []
        self.results: list[RunResult] = []
        self._at_step = at_step or {}

    def on_start(self, start: StartRecord) -> None:
        self.starts.append(start)

    def on_step(self, record: StepRecord) -> None:
        self.steps.append(record)
        self._at_step.get(len(self.steps), lambda: None)()

    def on_epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)

    def on_end(self, result: RunResult) -> None:
        self.results.append(result)

    @property
    def losses(self) -> list[float]:
        return [float(record.loss) for record in self.steps]


def send(number: int) -> Callable[[], None]:
    """Send a signal to this process."""
    return lambda: os.kill(os.getpid(), number)


def without_times(folder: Path) -> list[dict[str, float]]:
    """The rows of `metrics.csv`, but for how long it took."""
    rows = read_rows(folder / "metrics.csv")
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


def assert_same_run(one: Path, other: Path) -> None:
    """Same scores, same weights, same full state, to the last bit."""
    assert without_times(one) == without_times(other)
    for file in ("best.safetensors", "last/state.safetensors"):
        assert_same_tensors(read_tensors(one / file)[0], read_tensors(other / file)[0])


def assert_same_tensors(some: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    assert some.keys() == others.keys()
    for name, tensor in some.items():
        assert torch.equal(tensor, others[name]), name

"""Train on one large graph as a whole, and on a set that is larger than the memory of a GPU.

    PYTHONPATH=src python benchmarks/large_graph.py --device cuda --out FILE.json
    PYTHONPATH=src python benchmarks/large_graph.py --device cpu --nodes 100000 --out FILE.json

The graph is random. The class of a node follows from its own features, those of its neighbours and
noise. Model and training are the library's defaults, on the whole graph (`train.neighbours: 0`). On
a GPU a set of small graphs is then trained on three times: resident and captured, resident, and
while another tensor takes so much memory that its batches are streamed from the CPU. The last two
have to end in equal bits.
"""

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import Features, Task
from graphmamba.data.custom.options import DataOptions, DataSource
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns
from graphmamba.environment import describe, resolve_device
from graphmamba.studies.report import write_json
from graphmamba.training.checkpoint import read_tensors
from graphmamba.training.defaults import Size, default_experiment
from graphmamba.training.distributed import ROOM
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.graphs import take_graphs
from graphmamba.training.progress import EpochRecord, Reporter, StartRecord

CHANNELS, CLASSES = 16, 4
"""Features of a node, and classes."""
SMALL_NODES, SMALL_EDGES = 30, 60
"""Nodes and edges of each small graph."""


class Clock(Reporter):
    """Notes when the first step begins, and all epochs."""

    def __init__(self) -> None:
        self.begin, self.start_seconds, self.cpu_begin = time.perf_counter(), 0.0, 0.0
        self.notes: tuple[str, ...] = ()
        self.epochs: list[EpochRecord] = []

    def on_start(self, start: StartRecord) -> None:
        """Stop the time of the start."""
        self.start_seconds, self.notes = time.perf_counter() - self.begin, start.notes
        self.cpu_begin = time.process_time()

    def on_epoch(self, record: EpochRecord) -> None:
        """Keep the record."""
        self.epochs.append(record)


def large_graph(nodes: int, edges: int, generator: torch.Generator) -> Data:
    """Generate a graph whose nodes are split 60, 20 and 20 %."""
    x = torch.randn(nodes, CHANNELS, generator=generator)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    received = torch.zeros(nodes, CLASSES).index_add_(0, edge_index[1], x[edge_index[0], :CLASSES])
    noise = torch.randn(nodes, CLASSES, generator=generator)
    y = (x[:, :CLASSES] + received * (nodes / edges) ** 0.5 + noise / 2).argmax(dim=1)
    fifth = torch.randint(5, (nodes,), generator=generator)
    masks = {"train_mask": fifth > 1, "val_mask": fifth == 1, "test_mask": fifth == 0}
    return Data(x=x, edge_index=edge_index, y=y, **masks)


def small_graphs(graphs: int, generator: torch.Generator) -> GraphStore:
    """Generate graphs of equal size whose class follows from the mean of their features."""
    nodes, edges = graphs * SMALL_NODES, graphs * SMALL_EDGES
    x = torch.randn(nodes, CHANNELS, generator=generator)
    mean = x.view(graphs, SMALL_NODES, CHANNELS)[:, :, :CLASSES].mean(dim=1)
    return GraphStore(
        GraphColumns(
            node_ptr=torch.arange(0, nodes + 1, SMALL_NODES),
            edge_ptr=torch.arange(0, edges + 1, SMALL_EDGES),
            edge_index=torch.randint(SMALL_NODES, (2, edges), generator=generator),
            nodes={"x": x},
            graphs={"y": mean.argmax(dim=1)},
            split=torch.tensor([0, 0, 0, 1, 2]).repeat(-(-graphs // 5))[:graphs],
        )
    )


def experiment_on(store: GraphStore, size: Size, epochs: int) -> Experiment:
    """Choose model and training for these graphs, as for anybody's."""
    task = Task("graph", CLASSES, "cross_entropy", "accuracy", CLASSES)
    names = tuple(str(number) for number in range(CLASSES))
    data = DataSource.of(DataOptions()).described(Features(node_columns=CHANNELS), task, names)
    return default_experiment(data, store, size, {"train.epochs": epochs})


def train(
    clock: Clock, experiment: Experiment, store: GraphStore, options: RunOptions
) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Train in a directory that is deleted afterwards; returns times, scores and weights."""
    with tempfile.TemporaryDirectory() as folder:
        result = fit(experiment, store, options, Path(folder) / "run", clock, progress=False)
        cpu_seconds = time.process_time() - clock.cpu_begin
        weights, _ = read_tensors(Path(folder) / "run" / "best.safetensors")
    others = sorted(each.seconds for each in clock.epochs[1:]) or [float("nan")]
    return {
        "start_seconds": round(clock.start_seconds, 2),
        "first_epoch_seconds": round(clock.epochs[0].seconds, 2),
        "epoch_seconds": round(others[len(others) // 2], 3),
        "cpu_seconds_an_epoch": round(cpu_seconds / result.epochs, 2),
        "peak_gib": round(result.peak_memory / 2**30, 2),
        "parameters": result.parameters, "epochs": result.epochs, "metric": result.metric,
        "train_loss": [each.train_loss for each in clock.epochs],
        "validation": result.validation, "test": result.test, "notes": clock.notes,
    }, weights  # fmt: skip


def train_large(given: argparse.Namespace) -> dict[str, object]:
    """Train on the whole graph; the time to start begins with the PyG graph in memory."""
    data = large_graph(given.nodes, given.edges, torch.Generator().manual_seed(0))
    clock = Clock()
    experiment, store = take_graphs(data, size=given.size)
    asked = replace(experiment.train, neighbours=0, epochs=given.epochs)
    options = RunOptions(device=given.device)
    found, _ = train(clock, replace(experiment, train=asked), store, options)
    return {"nodes": given.nodes, "edges": given.edges, "steps": asked.steps_per_epoch, **found}


def train_streamed(given: argparse.Namespace) -> dict[str, object]:
    """Train on a set that fits into the memory of the GPU, and on the same when it does not."""
    store = small_graphs(given.graphs, torch.Generator().manual_seed(0))
    experiment = experiment_on(store, given.size, given.streamed_epochs)
    found: dict[str, dict[str, object]] = {}
    weights: dict[str, dict[str, Tensor]] = {}
    for name in ("captured", "resident", "streamed"):
        options = RunOptions(
            device=given.device, compile="off", cuda_graph="on" if name == "captured" else "off"
        )
        gc.collect()
        torch.cuda.empty_cache()
        # as much as is free beyond what the set would need
        room = int(0.95 * store.nbytes / ROOM)
        taken = torch.cuda.mem_get_info()[0] - room if name == "streamed" else 0
        ballast = torch.empty(taken, dtype=torch.uint8, device="cuda")
        clock = Clock()
        found[name], weights[name] = train(clock, experiment, store, options)
        del ballast
        is_streamed = any("sent to the GPU" in note for note in clock.notes)
        if is_streamed != (name == "streamed"):
            sys.exit(f"{name}: is_streamed is {is_streamed}")
    is_same = all(
        torch.equal(each, weights["streamed"][key]) for key, each in weights["resident"].items()
    )
    sizes = {"graphs": given.graphs, "bytes": store.nbytes}
    return {**sizes, "is_same_to_the_bit": is_same, **found}


def main() -> None:
    """Train and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, help="ten for each node")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--size", default="auto")
    parser.add_argument("--graphs", type=int, default=200_000, help="of the streamed set")
    parser.add_argument("--streamed_epochs", type=int, default=2)
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    given = parser.parse_args()
    given.edges = given.edges or 10 * given.nodes
    device = resolve_device(given.device)
    record = {"environment": describe(device, given.commit), "whole_graph": train_large(given)}
    write_json(given.out, record)
    if device.type == "cuda":
        write_json(given.out, record | {"streamed": train_streamed(given)})


if __name__ == "__main__":
    main()

"""Times of GatedGCN's work on a layer's edges: the map, the gated sum, the norm, and the node norm.

`apart` is one operation after the other, `joint` has the norm in the sum, `mapped` the map as well
(`graphmamba/stack/edge_update`). Run it on a machine with a GPU:

    PYTHONPATH=src:benchmarks python benchmarks/edge_update.py --out FILE.json
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from gated_gcn import BATCHES, Graphs, Inputs, draw
from rich.console import Console
from torch import Tensor

from graphmamba.bench.bound import FLOAT_BYTES
from graphmamba.bench.measure import cold_sets, measure_passes
from graphmamba.bench.tables import table, write_json
from graphmamba.data.topology import Topology
from graphmamba.environment import describe, resolve_device
from graphmamba.stack import GatedGCN, edge_update

WAYS = ("apart", "joint", "mapped")


@dataclass(frozen=True)
class Times:
    """What one way needs for one batch."""

    batch: str
    way: str
    forward_ms: float
    both_ms: float
    """Forward and backward together."""
    peak_bytes: int | None


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--device", default="cuda", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    times = [measure(BATCHES[name], way, device) for name in options.batches for way in WAYS]
    rows = (
        [one.batch, one.way, f"{1e3 * one.forward_ms:.1f}", f"{1e3 * one.both_ms:.1f}"]
        for one in times
    )
    columns = ["batch", "way", "forward us", "forward and backward us"]
    Console().print(table("a layer of GatedGCN", columns, rows))
    write_json(options.out, {"environment": describe(device, options.commit), "times": times})


def measure(batch: Graphs, way: str, device: torch.device) -> Times:
    """Time one way on one batch, in training."""
    layer = GatedGCN(batch.channels).to(device)
    size = (8 * batch.nodes + 5 * batch.edges) * batch.channels * FLOAT_BYTES
    inputs = [draw(batch, device, seed) for seed in range(cold_sets(size))]
    with in_this_way(way):
        forward, both = ([partial(step, layer, one) for one in inputs] for step in (_run, _both))
        return Times(batch.name, way, *measure_passes(forward, both, device))


@contextmanager
def in_this_way(way: str) -> Iterator[None]:
    """Let layers work on their edges in one of the ways, until the end of the context."""
    before = edge_update._is_joint, edge_update.ARE_EDGES_MAPPED
    matmul = torch.backends.cuda.matmul
    precision, matmul.fp32_precision = matmul.fp32_precision, "tf32"
    edge_update.ARE_EDGES_MAPPED = way == "mapped"
    if way == "apart":
        edge_update._is_joint = lambda *_: False
    try:
        yield
    finally:
        matmul.fp32_precision = precision
        edge_update._is_joint, edge_update.ARE_EDGES_MAPPED = before


def _run(layer: GatedGCN, inputs: Inputs) -> tuple[Tensor, ...]:
    nodes, channels = inputs.nodes.shape[0], layer.edge_norm.num_features
    whole = torch.zeros(nodes, dtype=torch.int64, device=inputs.nodes.device)
    topology = Topology(inputs.layout.edge_index, whole, 1, edge_layout=inputs.layout)
    x, e = layer(inputs.nodes[:, :channels], inputs.edges, topology)
    return x, e


def _both(layer: GatedGCN, inputs: Inputs) -> tuple[Tensor, ...]:
    leaves = inputs.nodes, inputs.edges, *layer.parameters()
    return torch.autograd.grad(_run(layer, inputs), leaves, inputs.grads)


if __name__ == "__main__":
    main()

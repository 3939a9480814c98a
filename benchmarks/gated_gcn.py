"""Times of GatedGCN's sums over the edges, against plain PyTorch and the bound of the chip.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/gated_gcn.py --device auto --out FILE.json
"""

import argparse
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from graphmamba.bench.bound import FLOAT_BYTES, Bound, rows_bound
from graphmamba.bench.measure import cold_sets, measure_passes
from graphmamba.bench.tables import beside_bound, result_path, table, write_json
from graphmamba.data.edge_layout import EdgeLayout, lay_out_edges
from graphmamba.environment import describe, resolve_device
from graphmamba.scan import available_backends
from graphmamba.scan.options import Backend
from graphmamba.stack.gated_sum import gated_sum

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Graphs:
    """Equal graphs end to end, and how unevenly edges meet at their nodes."""

    name: str
    graphs: int
    nodes: int
    edges: int
    channels: int
    spread: float = 0.2
    """Standard deviation of the logarithm of the degrees."""
    hub: int = 0
    """Edges that end at the first node of each graph, beside those drawn."""

    @property
    def bound(self) -> Bound:
        """What an H200 needs for moving each row once."""
        # The rows a, b, d, e and x_hat; those of the edges in and out.
        forward = 5 * self.nodes + 2 * self.edges
        # The rows b and dx, four gradients; e_hat and its gradient in, that of the edges out.
        backward = 6 * self.nodes + 3 * self.edges
        return rows_bound(forward, backward, self.channels)


BATCHES = {
    "peptides": Graphs("peptides", 128, 20_926, 42_900, channels=96),
    "voc": Graphs("voc", 32, 15_227, 86_000, channels=96),
    "malnet16": Graphs("malnet16", 16, 28_643, 57_000, channels=64, spread=1.5, hub=500),
    "pattern": Graphs("pattern", 32, 3_800, 195_000, channels=64),
    "cluster": Graphs("cluster", 16, 1_876, 69_000, channels=48),
}
"""Training batches of the benchmarks, by the sizes of their graphs."""


@dataclass(frozen=True)
class Times:
    """What one backend needs for one batch."""

    batch: Graphs
    backend: str
    forward_ms: float
    both_ms: float
    """Forward and backward together."""
    peak_bytes: int | None
    """CUDA memory of forward and backward beyond the inputs; unknown on a CPU."""


@dataclass(frozen=True)
class Inputs:
    """What one call takes, and the gradients that come back to its outputs."""

    nodes: Tensor
    edges: Tensor
    layout: EdgeLayout
    grads: tuple[Tensor, Tensor]


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, help="JSON file; default: benchmarks/results/gated-*")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    environment = describe(device, options.commit)
    times = [
        measure(batch, backend, device)
        for batch in BATCHES.values()
        for backend in available_backends(device)
    ]
    Console().print(times_table(times, str(environment["device"])))
    out = result_path(options.out, RESULTS, "gated-gcn", environment)
    bounds = {name: astuple(batch.bound) for name, batch in BATCHES.items()}
    write_json(out, {"environment": environment, "times": times, "h200_bound_ms": bounds})


def measure(batch: Graphs, backend: Backend, device: torch.device) -> Times:
    """Time one backend in float32."""
    size = (5 * batch.nodes + 2 * batch.edges) * batch.channels * FLOAT_BYTES
    inputs = [draw(batch, device, seed) for seed in range(cold_sets(size))]
    forward, both = ([partial(way, one, backend) for one in inputs] for way in (_forward, _both))
    return Times(batch, backend, *measure_passes(forward, both, device))


def draw(batch: Graphs, device: torch.device, seed: int = 0) -> Inputs:
    """Draw edges within each graph, sorted by target as `GraphStore` gives them out, and rows."""
    rng = np.random.default_rng(seed)
    each = batch.nodes // batch.graphs
    graph = np.sort(rng.integers(batch.graphs, size=batch.edges))
    weights = np.cumsum(rng.lognormal(sigma=batch.spread, size=each))
    place = np.searchsorted(weights, rng.uniform(0, weights[-1], batch.edges))
    is_hub = rng.random(batch.edges) < batch.hub * batch.graphs / batch.edges
    target = np.sort(graph * each + np.where(is_hub, 0, place))
    source = target // each * each + rng.integers(each, size=batch.edges)
    edge_index = torch.from_numpy(np.stack([source, target])).to(device)
    generator = torch.Generator(device).manual_seed(seed)

    def normal(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, device=device)

    d = batch.channels
    return Inputs(
        nodes=normal(batch.nodes, 4 * d).requires_grad_(),
        edges=normal(batch.edges, d).requires_grad_(),
        layout=lay_out_edges(
            edge_index, batch.nodes, edge_index[0].argsort(stable=True), check=True
        ),
        grads=(normal(batch.nodes, d), normal(batch.edges, d)),
    )


def times_table(times: list[Times], device: str) -> Table:
    """Show times beside those of plain PyTorch and, on a GPU, beside the bound of an H200."""
    plain = {one.batch.name: one.both_ms for one in times if one.backend == "reference"}
    return table(
        f"gated_sum, float32, forward / forward and backward, on {device}",
        ["batch", "backend", "edges", "ms", "speed-up", "/ bound", "peak MiB"],
        (
            [
                one.batch.name,
                one.backend,
                f"{one.batch.edges:,}",
                f"{one.forward_ms:.3f} / {one.both_ms:.3f}",
                f"{plain[one.batch.name] / one.both_ms:.1f}x",
                *beside_bound(one, one.batch.bound),
            ]
            for one in times
        ),
    )


def _forward(inputs: Inputs, backend: Backend) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return gated_sum(inputs.nodes, inputs.edges, inputs.layout, backend=backend)


def _both(inputs: Inputs, backend: Backend) -> tuple[Tensor, ...]:
    found = gated_sum(inputs.nodes, inputs.edges, inputs.layout, backend=backend)
    return torch.autograd.grad(found, (inputs.nodes, inputs.edges), inputs.grads)


if __name__ == "__main__":
    main()

"""Times of BatchNorm with activation, dropout and residuals, against plain PyTorch and the chip.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/norm.py --device auto --out FILE.json

On a GPU it tries other tiles for the kernels too, and shows what each kernel takes with them.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import norm_tiles
import torch
from norm_launches import CANDIDATES, SHAPES
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.bench.bound import FLOAT_BYTES, Bound, rows_bound
from graphmamba.bench.measure import cold_sets, measure_passes
from graphmamba.bench.tables import beside_bound, result_path, table, write_json
from graphmamba.encode.norm import BatchNorm
from graphmamba.environment import describe, resolve_device

RESULTS = Path(__file__).parent / "results"
TABLE_WIDTH = 220
"""Columns for the tables of tiles, which are wider than a terminal."""


@dataclass(frozen=True)
class Place:
    """Where in a layer a norm stands: around it rows are added, or its result is activated."""

    name: str
    rows: int
    channels: int
    is_activated: bool
    """`a + drop(relu(norm(x)))`, as in message passing; else `a + norm(b + drop(x))`."""
    rate: float = 0.0
    ghosts: float = 0.0
    """Share of rows that do not count."""

    @property
    def bound(self) -> Bound:
        """What an H200 needs for moving each row once."""
        # x and a in, y out, and b; then dy and x in, dx out, and b.
        forward, backward = (3, 3) if self.is_activated else (4, 4)
        return rows_bound(forward * self.rows, backward * self.rows, self.channels)


PLACES = {
    place.name: place
    for place in (
        Place("peptides nodes", 21_000, 96, is_activated=False),
        Place("peptides edges", 43_000, 96, is_activated=True),
        Place("pattern edges", 195_000, 64, is_activated=True),
        Place("peptides edges, dropout", 43_000, 96, is_activated=True, rate=0.1),
        Place("peptides edges, ghosts", 43_000, 96, is_activated=True, ghosts=0.05),
    )
}
"""Norms of training batches of the benchmarks."""


@dataclass(frozen=True)
class Inputs:
    """What one call takes, and the gradient that comes back."""

    leaves: tuple[Tensor, ...]
    """x, a and, where it is added, b."""
    grad: Tensor
    seed: Tensor
    count: Tensor | None


Call = Callable[[nn.Module, Place, Inputs], Tensor]


@dataclass(frozen=True)
class Times:
    """What one way of computing it needs for one place."""

    place: Place
    way: str
    forward_ms: float
    both_ms: float
    """Forward and backward together."""
    peak_bytes: int | None
    """CUDA memory of forward and backward beyond the inputs; unknown on a CPU."""


def by_torch(norm: nn.Module, place: Place, inputs: Inputs) -> Tensor:
    """PyTorch's operations one by one; its norm knows of no ghosts, so that all rows count."""
    x, after, *before = inputs.leaves
    if place.is_activated:
        return after + functional.dropout(functional.relu(norm(x)), place.rate)
    return after + norm(before[0] + functional.dropout(x, place.rate))


def by_us(norm: nn.Module, place: Place, inputs: Inputs) -> Tensor:
    """One operation; on a GPU the fused one."""
    x, after, *before = inputs.leaves
    if place.is_activated:
        return norm(
            *(x, inputs.count),
            after=after,
            activation="relu",
            rate_after=place.rate,
            seed=inputs.seed,
        )
    return norm(
        x, inputs.count, before=before[0], after=after, rate_before=place.rate, seed=inputs.seed
    )


WAYS: dict[str, tuple[type[nn.Module], Call]] = {
    "torch": (nn.BatchNorm1d, by_torch),
    "graphmamba": (BatchNorm, by_us),
}


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, help="JSON file; default: benchmarks/results/norm-*")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    parser.add_argument("--no-tiles", action="store_true", help="try no other tiles")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 16),
                        help="that compile kernels with other tiles ahead")  # fmt: skip
    options = parser.parse_args()

    device = resolve_device(options.device)
    environment = describe(device, options.commit)
    out = result_path(options.out, RESULTS, "norm", environment)
    bounds = {name: astuple(place.bound) for name, place in PLACES.items()}
    content = {"environment": environment, "h200_bound_ms": bounds}
    if device.type == "cpu" or options.no_tiles:
        write_json(out, content | {"times": measure_all(device)})
        return
    with norm_tiles.compile_pool(options.processes) as pool:
        compiled = norm_tiles.compile_ahead(pool)
        times = measure_all(device)
        # Written at once and again at the end: the second part may run out of time.
        write_json(out, content | {"times": times})
        for one in compiled:
            one.result()
    found = norm_tiles.measure_tiles(SHAPES, CANDIDATES)
    for each in norm_tiles.tile_tables(found):
        Console(width=TABLE_WIDTH).print(each)
    write_json(out, content | {"times": times, "tiles": [one.entry for one in found]})


def measure_all(device: torch.device) -> list[Times]:
    """Measure all places, print their table."""
    times = [measure(place, way, device) for place in PLACES.values() for way in WAYS]
    Console().print(times_table(times, str(describe(device)["device"])))
    return times


def measure(place: Place, way: str, device: torch.device) -> Times:
    """Time one way in float32, in training."""
    size = (3 if place.is_activated else 4) * place.rows * place.channels * FLOAT_BYTES
    inputs = [draw(place, device, seed) for seed in range(cold_sets(size))]
    kind, call = WAYS[way]
    norm = kind(place.channels).to(device)
    forward, both = (
        [partial(each, call, norm, place, one) for one in inputs] for each in (_forward, _both)
    )
    return Times(place, way, *measure_passes(forward, both, device))


def draw(place: Place, device: torch.device, seed: int = 0) -> Inputs:
    """Draw rows and gradients."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = place.rows, place.channels
    rows = [
        torch.randn(shape, generator=generator, device=device)
        for _ in range(3 if place.is_activated else 4)
    ]
    real = place.rows - int(place.ghosts * place.rows)
    return Inputs(
        leaves=tuple(each.requires_grad_() for each in rows[1:]),
        grad=rows[0],
        seed=torch.tensor(seed, device=device),
        count=torch.tensor(real, device=device) if place.ghosts else None,
    )


def times_table(times: list[Times], device: str) -> Table:
    """Show times beside those of plain PyTorch and, on a GPU, beside the bound of an H200."""
    plain = {one.place.name: one.both_ms for one in times if one.way == "torch"}
    return table(
        f"BatchNorm and its neighbours, float32, forward / forward and backward, on {device}",
        ["norm", "way", "rows", "ms", "speed-up", "/ bound", "peak MiB"],
        (
            [
                one.place.name,
                one.way,
                f"{one.place.rows:,} x {one.place.channels}",
                f"{one.forward_ms:.3f} / {one.both_ms:.3f}",
                f"{plain[one.place.name] / one.both_ms:.1f}x",
                *beside_bound(one, one.place.bound),
            ]
            for one in times
        ),
    )


def _forward(call: Call, norm: nn.Module, place: Place, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        return call(norm, place, inputs)


def _both(call: Call, norm: nn.Module, place: Place, inputs: Inputs) -> tuple[Tensor, ...]:
    wanted = *inputs.leaves, *norm.parameters()
    return torch.autograd.grad(call(norm, place, inputs), wanted, inputs.grad)


if __name__ == "__main__":
    main()

"""Times of BatchNorm with activation, dropout and residuals, against plain PyTorch and the chip.

PYTHONPATH=src python benchmarks/norm.py --device auto --out FILE.json
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
from rich.console import Console, Group
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.bench import BYTES_PER_SECOND, FLOAT_BYTES, Bound, cold_sets, measure_passes
from graphmamba.environment import describe, resolve_device
from graphmamba.nn.norm import BatchNorm
from graphmamba.ops.batch_norm import Drop, batch_norm_act
from graphmamba.studies.report import table, write_json


@dataclass(frozen=True)
class Place:
    """Where in a layer a norm stands: a residual is added, or its result is activated."""

    name: str
    rows: int
    channels: int
    is_activated: bool
    """`a + drop(relu(norm(x)))`, as in message passing; else `a + norm(b + drop(x))`."""
    rate: float = 0.0
    padding: float = 0.0
    """Share of nodes or edges that belong to a padding graph and do not count."""

    @property
    def tensors(self) -> int:
        """Tensors of the size of x that go in, the gradient included."""
        return 3 if self.is_activated else 4

    @property
    def bound(self) -> Bound:
        """What an H200 needs for moving each number once: as many tensors in either pass."""
        size = self.tensors * self.rows * self.channels * FLOAT_BYTES
        forward = 1e3 * size / BYTES_PER_SECOND
        return Bound(forward, 2 * forward)


PLACES = {
    place.name: place
    for place in (
        Place("peptides nodes", 21_000, 96, is_activated=False),
        Place("peptides edges", 43_000, 96, is_activated=True),
        Place("pattern edges", 195_000, 64, is_activated=True),
        Place("peptides edges, dropout", 43_000, 96, is_activated=True, rate=0.1),
        Place("peptides edges, padding graphs", 43_000, 96, is_activated=True, padding=0.05),
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
    """PyTorch's operations one by one; its norm knows of no padding, so that all counts."""
    x, after, *before = inputs.leaves
    if place.is_activated:
        return after + functional.dropout(functional.relu(norm(x)), place.rate)
    return after + norm(before[0] + functional.dropout(x, place.rate))


def by_us(norm: nn.Module, place: Place, inputs: Inputs) -> Tensor:
    """One operation; on a GPU by kernels."""
    x, after, *before = inputs.leaves
    own, drop = cast(BatchNorm, norm), Drop(place.rate, inputs.seed, 0)
    parts = x, own.weight, own.bias, own.running()
    if place.is_activated:
        return batch_norm_act(
            *parts, after=after, activation="relu", drop_after=drop, count=inputs.count
        )
    return batch_norm_act(
        *parts, before=before[0], after=after, drop_before=drop, count=inputs.count
    )


WAYS: dict[str, tuple[type[nn.Module], Call]] = {
    "torch": (nn.BatchNorm1d, by_torch),
    "graphmamba": (BatchNorm, by_us),
}


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    environment = describe(device, options.commit)
    times = [measure(place, way, device) for place in PLACES.values() for way in WAYS]
    Console().print(times_table(times, str(environment["device"])))
    bounds = {name: place.bound for name, place in PLACES.items()}
    content = {"environment": environment, "h200_bound_ms": bounds, "times": times}
    write_json(options.out, content)


def measure(place: Place, way: str, device: torch.device) -> Times:
    """Time one way in float32, in training."""
    sets = cold_sets(place.tensors * place.rows * place.channels * FLOAT_BYTES)
    inputs = [draw(place, device, seed) for seed in range(sets)]
    kind, call = WAYS[way]
    norm = kind(place.channels).to(device)

    def forward(one: Inputs) -> Tensor:
        with torch.no_grad():
            return call(norm, place, one)

    def both(one: Inputs) -> tuple[Tensor, ...]:
        wanted = *one.leaves, *norm.parameters()
        return torch.autograd.grad(call(norm, place, one), wanted, one.grad)

    steps, pairs = ([partial(each, one) for one in inputs] for each in (forward, both))
    return Times(place, way, *measure_passes(steps, pairs, device))


def draw(place: Place, device: torch.device, seed: int = 0) -> Inputs:
    """Draw what comes in, and gradients."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = place.rows, place.channels
    grad, *leaves = (
        torch.randn(shape, generator=generator, device=device) for _ in range(place.tensors)
    )
    real = place.rows - int(place.padding * place.rows)
    return Inputs(
        leaves=tuple(each.requires_grad_() for each in leaves),
        grad=grad,
        seed=torch.tensor(seed, device=device),
        count=torch.tensor(real, device=device) if place.padding else None,
    )


def times_table(times: list[Times], device: str) -> Group:
    """Show times beside those of plain PyTorch and, on a GPU, beside the bound of an H200."""
    plain = {one.place.name: one.both_ms for one in times if one.way == "torch"}

    def cells(one: Times) -> list[str]:
        bound = one.place.bound
        ratios = f"{one.forward_ms / bound.forward_ms:.1f}x / {one.both_ms / bound.both_ms:.1f}x"
        on_gpu = [] if one.peak_bytes is None else [ratios, f"{one.peak_bytes / 2**20:.0f}"]
        return [
            one.place.name,
            one.way,
            f"{one.place.rows:,} x {one.place.channels}",
            f"{one.forward_ms:.3f} / {one.both_ms:.3f}",
            f"{plain[one.place.name] / one.both_ms:.1f}x",
            *on_gpu,
        ]

    return table(
        f"BatchNorm and its neighbours, float32, forward / forward and backward, on {device}",
        ["norm", "way", "nodes or edges", "ms", "speed-up", "/ bound", "peak MiB"],
        map(cells, times),
    )


if __name__ == "__main__":
    main()

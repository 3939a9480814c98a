"""Times of the selective scan on one batch: forward, and forward with backward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from graphmamba.bench import padded
from graphmamba.bench.bound import chip_bound
from graphmamba.bench.shapes import BatchShape, ScanInputs, scan_inputs
from graphmamba.bench.timing import Step, median_ms, once_ms, peak_bytes
from graphmamba.scan import selective_scan
from graphmamba.scan.options import Backend

COLD_BYTES = 200_000_000
"""Input sets take turns over this much memory, several times what a GPU's cache holds."""
PADDED_LOOP = "padded loop"
"""Stands where a backend's name would, for what the packed forms are compared with."""


@dataclass(frozen=True)
class ScanTimes:
    """What one backend needs for one batch."""

    batch: BatchShape
    backend: str
    forward_ms: float
    both_ms: float
    """Forward and backward together, with the gradient of every input."""
    peak_bytes: int | None = None
    """CUDA memory of forward and backward beyond the inputs; unknown on a CPU."""

    @property
    def times_bound(self) -> tuple[float, float]:
        """How many times the chip's bound the forward, and both passes, take."""
        bound = chip_bound(self.batch)
        return self.forward_ms / bound.forward_ms, self.both_ms / bound.both_ms

    @property
    def both_ns_per_token(self) -> float:
        """Time of both passes for one token, which linear growth keeps constant."""
        return 1e6 * self.both_ms / self.batch.tokens


def measure_scan(shape: BatchShape, backend: Backend, device: torch.device) -> ScanTimes:
    """Time one backend in float32, gate and softplus included."""
    operation = partial(selective_scan, backend=backend, check=False)
    first = scan_inputs(shape, device=device)
    seeds = range(1, cold_sets(first.bytes))
    inputs = [first, *(scan_inputs(shape, device=device, seed=seed) for seed in seeds)]
    forward, both = ([build(operation, one) for one in inputs] for build in (_forward, _both))
    return ScanTimes(shape, backend, *measure_passes(forward, both, device))


class Passes(NamedTuple):
    """What one way of computing something needs."""

    forward_ms: float
    both_ms: float
    """Forward and backward together."""
    peak_bytes: int | None
    """CUDA memory of forward and backward beyond the inputs; unknown on a CPU."""


def measure_passes(forward: Sequence[Step], both: Sequence[Step], device: torch.device) -> Passes:
    """Time the forward pass, and both, each on several sets of inputs that take turns."""
    return Passes(
        forward_ms=median_ms(forward, device),
        both_ms=median_ms(both, device),
        peak_bytes=peak_bytes(both[0]) if device.type == "cuda" else None,
    )


def cold_sets(size: int) -> int:
    """Count the sets of inputs, each of `size` bytes, that keep caches cold."""
    return min(ceil(COLD_BYTES / size), 8)


def measure_padded_loop(shape: BatchShape) -> ScanTimes:
    """Time plain PyTorch on the CPU over the padded batch: the best of three calls each.

    Its gigabytes of intermediate tensors make single calls differ by half; the best is the fairest
    to compare with.
    """
    inputs = scan_inputs(shape, device=torch.device("cpu"))
    forward, both = (build(padded.selective_scan, inputs) for build in (_forward, _both))
    # The first call pays for gigabytes of fresh memory; the comparison should not.
    both()
    forward_ms, both_ms = (min(once_ms(step) for _ in range(3)) for step in (forward, both))
    return ScanTimes(shape, PADDED_LOOP, forward_ms=forward_ms, both_ms=both_ms)


def _forward(operation: Callable[..., Tensor], inputs: ScanInputs) -> Step:
    def step() -> Tensor:
        with torch.no_grad():
            return operation(**inputs.leaves, cu_seqlens=inputs.cu_seqlens)

    return step


def _both(operation: Callable[..., Tensor], inputs: ScanInputs) -> Step:
    def step() -> tuple[Tensor, ...]:
        out = operation(**inputs.leaves, cu_seqlens=inputs.cu_seqlens)
        return torch.autograd.grad(out, list(inputs.leaves.values()), inputs.out_grad)

    return step

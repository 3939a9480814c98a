"""`graphmamba bench scan`: are the backends of the scan right on this machine, and how fast?

The judge of exactness is the reference in float64. Times are those of batches of the sizes that the
benchmarks' graphs have, filled with seeded random rows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.console import Console, Group
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from graphmamba import ops as scan
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.ops.backends import Backend
from graphmamba.parse import words_among
from graphmamba.studies.report import table, write_json

FLOOR = 1e-6
"""Error that is allowed where plain PyTorch makes none."""
BUDGET_S = 0.5
"""How long one measurement goes on repeating."""
GRAPH_MS = 2.0
"""A captured graph lasts at least this long, so that its launch does not count."""
COLD_BYTES = 200_000_000
"""Input sets take turns over this much memory, several times what a GPU's cache holds."""
PADDED_LOOP = "padded loop"
"""Stands where a backend's name would, for what the packed forms are compared with."""
PADDED_LIMIT = 100_000
"""Positions, padding included, beyond which the padded loop would fill the memory."""
BYTES_PER_SECOND = 4.3e12
"""What a device-to-device copy of an H200 reaches, reads and writes counted."""
EXPONENTIALS_PER_SECOND = 4.2e12
"""What its special-function units reach."""
FLOAT_BYTES = 4

Step = Callable[[], object]


@dataclass(frozen=True)
class BatchShape:
    """How many sequences and tokens a packed batch has, and how wide they are."""

    name: str
    sequences: int
    tokens: int
    longest: int
    inner: int
    state: int = 16
    spread: float = 0.5
    """Standard deviation of the logarithm of the lengths."""


BATCHES = {
    shape.name: shape
    for shape in (
        BatchShape("peptides", 128, 20_926, longest=444, inner=96),
        BatchShape("voc", 32, 15_227, longest=500, inner=96, spread=0.03),
        BatchShape("malnet16", 16, 28_643, longest=3_966, inner=64, spread=0.6),
        BatchShape("malnet256", 256, 323_314, longest=5_000, inner=64, spread=0.8),
        BatchShape("million", 1, 1_000_000, longest=1_000_000, inner=96),
    )
}
"""The batches that every speed in this project is quoted for, by name."""
USUAL_SIZES = {"cpu": ["peptides"], "cuda": [*BATCHES]}
"""What a CPU can do while somebody waits, and what a GPU can."""


@dataclass(frozen=True)
class ScanInputs:
    """What one call of `selective_scan` takes, and the gradient that comes back to its output."""

    leaves: dict[str, Tensor]
    """The differentiable arguments by name, each requiring its gradient."""
    cu_seqlens: Int[Tensor, " boundaries"]
    out_grad: Float[Tensor, "steps inner"]


def draw_lengths(shape: BatchShape, seed: int = 0) -> list[int]:
    """Draw log-normal lengths that add up to exactly `shape.tokens`, one of them the longest."""
    rng = np.random.default_rng(seed)
    rest, others = shape.tokens - shape.longest, shape.sequences - 1
    weights = rng.lognormal(sigma=shape.spread, size=others)
    lengths = (rest * weights / weights.sum()).astype(int).clip(1, shape.longest)
    # Rounding and clipping leave a few tokens over, or take a few too many.
    while missing := rest - int(lengths.sum()):
        has_room = lengths < shape.longest if missing > 0 else lengths > 1
        lengths[np.flatnonzero(has_room)[: abs(missing)]] += np.sign(missing)
    return rng.permutation([shape.longest, *lengths]).tolist()


def scan_inputs(
    shape: BatchShape, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0
) -> ScanInputs:
    """Fill a batch with values as a freshly initialised Mamba block has them.

    Equal seeds give equal lengths everywhere, and equal values on the same kind of device.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    boundaries = np.cumsum([0, *draw_lengths(shape, seed)])
    steps, inner, state = shape.tokens, shape.inner, shape.state
    # Step sizes start log-uniform between 0.001 and 0.1; the bias is softplus undone.
    exponent = torch.rand(inner, generator=generator, device=device) * 2 - 3
    values = {
        "u": normal(steps, inner),
        "delta": 0.1 * normal(steps, inner),
        "A": -torch.arange(1.0, state + 1, device=device).repeat(inner, 1),
        "B": normal(steps, state),
        "C": normal(steps, state),
        "D": torch.ones(inner, device=device),
        "z": normal(steps, inner),
        "delta_bias": torch.log(torch.expm1(10**exponent)),
    }
    return ScanInputs(
        leaves={name: value.to(dtype).requires_grad_() for name, value in values.items()},
        cu_seqlens=torch.tensor(boundaries, dtype=torch.int32, device=device),
        out_grad=normal(steps, inner).to(dtype),
    )


def padded_scan(
    u: Float[Tensor, "steps inner"],
    delta: Float[Tensor, "steps inner"],
    A: Float[Tensor, "inner state"],
    B: Float[Tensor, "steps state"],
    C: Float[Tensor, "steps state"],
    D: Float[Tensor, " inner"],
    z: Float[Tensor, "steps inner"],
    delta_bias: Float[Tensor, " inner"],
    *,
    cu_seqlens: Int[Tensor, " boundaries"],
) -> Float[Tensor, "steps inner"]:
    """Scan without packing: all sequences padded to the longest, a loop of plain PyTorch."""
    lengths = cu_seqlens.diff().tolist()
    dt = functional.softplus(delta + delta_bias)
    # Time comes first, so that each step reads one contiguous slice.
    dt, x, B, C = (pad_sequence(rows.split(lengths)) for rows in (dt, u, B, C))
    decay = torch.exp(dt[..., None] * A)  # [longest, sequences, inner, state]
    drive = (dt * x)[..., None] * B[:, :, None]  # [longest, sequences, inner, state]

    h = torch.zeros_like(drive[0])
    y = []
    for decay_t, drive_t, C_t in zip(decay, drive, C, strict=True):
        h = decay_t * h + drive_t
        y.append((h @ C_t[..., None])[..., 0])
    padded = torch.stack(y, dim=1)  # [sequences, longest, inner]

    out = torch.cat([rows[:length] for rows, length in zip(padded, lengths, strict=True)])
    return (out + D * u) * functional.silu(z)


class Bound(NamedTuple):
    """Milliseconds under which no float32 operation on an H200 can go."""

    forward_ms: float
    both_ms: float
    """Forward and backward together."""


def chip_bound(shape: BatchShape) -> Bound:
    """Bound a scan by moving each byte once, and by its exponentials, whichever takes longer."""
    # u, delta, z and the output; B and C.
    moved = shape.tokens * (4 * shape.inner + 2 * shape.state) * FLOAT_BYTES
    # One for each state; softplus and the SiLU gate take two special functions each.
    exponentials = shape.tokens * shape.inner * (shape.state + 4)
    forward = max(moved / BYTES_PER_SECOND, exponentials / EXPONENTIALS_PER_SECOND)
    # The backward pass runs the recurrence again from its checkpoints, then once in reverse.
    return Bound(forward_ms=1e3 * forward, both_ms=3e3 * forward)


@dataclass(frozen=True)
class Agreement:
    """How far one backend is from the truth, in its worst tensor."""

    operation: str
    backend: str
    worst: str
    """`out`, or the input whose gradient comes nearest to what is allowed."""
    error: float
    allowed: float
    """Twice the error of the reference in the same dtype."""

    @property
    def holds(self) -> bool:
        """Whether the backend is as exact as it has to be; a NaN is not."""
        return self.error <= self.allowed


def check_backends(device: torch.device) -> list[Agreement]:
    """Compare output and all gradients of both operations, for every backend on this device."""
    shape = BatchShape("agreement", sequences=5, tokens=250, longest=120, inner=48)
    inputs = scan_inputs(shape, device)
    # Visited out of order and written back to where they came from, as the model does it.
    order = torch.randperm(shape.tokens, generator=torch.Generator().manual_seed(0)).to(device)
    options: dict[str, object] = {"cu_seqlens": inputs.cu_seqlens, "order": order}
    taps = torch.rand(shape.inner, 4, generator=torch.Generator().manual_seed(1)) - 0.5
    u, bias = inputs.leaves["u"], inputs.leaves["delta_bias"]
    conv = {"x": u, "weight": taps.to(device), "bias": bias}
    backends = [name for name in scan.available_backends(device) if name != "reference"]
    return [
        _check(operation, backend, leaves, given, inputs.out_grad)
        for operation, leaves, given in (
            ("causal_conv1d", conv, options),
            ("selective_scan", inputs.leaves, {**options, "scatter": True}),
        )
        for backend in backends
    ]


def _check(
    name: str,
    backend: str,
    inputs: dict[str, Tensor],
    options: dict[str, object],
    out_grad: Tensor,
) -> Agreement:
    operation: Callable[..., Tensor] = getattr(scan, name)

    def run(backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
        leaves = {key: leaf.detach().to(dtype).requires_grad_() for key, leaf in inputs.items()}
        out = operation(**leaves, **options, backend=backend)
        grads = torch.autograd.grad(out, list(leaves.values()), out_grad.to(dtype))
        return {"out": out.detach(), **dict(zip(leaves, grads, strict=True))}

    def error(value: Tensor, exact: Tensor) -> float:
        return float((value.double() - exact).abs().max())

    truth = run("reference", torch.float64)
    plain, found = run("reference", torch.float32), run(backend, torch.float32)
    compared = [
        Agreement(
            name, backend, key, error(found[key], exact), 2 * error(plain[key], exact) + FLOOR
        )
        for key, exact in truth.items()
    ]
    broken = [agreement for agreement in compared if not agreement.holds]
    return max(broken or compared, key=lambda one: one.error / one.allowed)


def median_ms(steps: Sequence[Step], device: torch.device) -> float:
    """Time one step by the median; equal steps on other data take turns, to keep caches cold."""
    if device.type == "cuda":
        return _replayed_ms(steps)
    for step in steps:
        step()
    times = [once_ms(steps[0])]
    while len(times) < _repeats(times[0]):
        times.append(once_ms(steps[len(times) % len(steps)]))
    return median(times)


def once_ms(step: Step) -> float:
    """Time a single call on the CPU."""
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def peak_bytes(step: Step) -> int:
    """Measure the CUDA memory that a step needs at its peak, beyond what was taken before it."""
    step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _repeats(single_ms: float) -> int:
    return min(max(int(1e3 * BUDGET_S / single_ms), 3), 200)


def _replayed_ms(steps: Sequence[Step]) -> float:
    """Replay a CUDA graph of the steps: what is left is the kernels' own time."""
    # Compile and allocate on a side stream, as capturing asks for.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for step in [*steps, *steps]:
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    single_ms = _events_ms(lambda: [step() for step in steps]) / len(steps)
    laps = min(ceil(GRAPH_MS / (single_ms * len(steps))), 20)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for step in laps * [*steps]:
            step()
    # The first replays also bring the clocks up.
    repeats = _repeats(_events_ms(graph.replay))
    times = [_events_ms(graph.replay) for _ in range(2 * repeats)][repeats:]
    return median(times) / (laps * len(steps))


def _events_ms(step: Step) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


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


def measure_scan(shape: BatchShape, backend: Backend, device: torch.device) -> ScanTimes:
    """Time one backend in float32, gate and softplus included."""
    operation = partial(scan.selective_scan, backend=backend, check=False)
    first = scan_inputs(shape, device)
    sets = cold_sets(sum(leaf.nbytes for leaf in first.leaves.values()))
    inputs = [first, *(scan_inputs(shape, device, seed=seed) for seed in range(1, sets))]
    forward, both = ([partial(way, operation, one) for one in inputs] for way in (_forward, _both))
    return ScanTimes(shape, backend, *measure_passes(forward, both, device))


def measure_padded_loop(shape: BatchShape) -> ScanTimes:
    """Time plain PyTorch on the CPU over the padded batch: the best of three calls each.

    Its gigabytes of intermediate tensors make single calls differ by half; the best is the fairest
    to compare with.
    """
    inputs = scan_inputs(shape, torch.device("cpu"))
    forward, both = (partial(way, padded_scan, inputs) for way in (_forward, _both))
    # The first call pays for gigabytes of fresh memory; the comparison should not.
    both()
    forward_ms, both_ms = (min(once_ms(step) for _ in range(3)) for step in (forward, both))
    return ScanTimes(shape, PADDED_LOOP, forward_ms, both_ms)


def _forward(operation: Callable[..., Tensor], inputs: ScanInputs) -> Tensor:
    with torch.no_grad():
        return operation(**inputs.leaves, cu_seqlens=inputs.cu_seqlens)


def _both(operation: Callable[..., Tensor], inputs: ScanInputs) -> tuple[Tensor, ...]:
    out = operation(**inputs.leaves, cu_seqlens=inputs.cu_seqlens)
    return torch.autograd.grad(out, list(inputs.leaves.values()), inputs.out_grad)


def agreement_table(agreements: Iterable[Agreement]) -> Group:
    """Show how near each backend's worst tensor comes to what is allowed."""
    return table(
        "Worst error of output and gradients against float64",
        ["operation", "backend", "in", "error", "allowed", ""],
        (
            [
                *(one.operation, one.backend, one.worst, f"{one.error:.1e}", f"{one.allowed:.1e}"),
                "ok" if one.holds else "WRONG",
            ]
            for one in agreements
        ),
    )


def times_table(times: Sequence[ScanTimes], device: str) -> Group:
    """Show times: of a GPU beside the bound of an H200, of a CPU beside the padded loop's."""
    loops = {one.batch.name: one.both_ms for one in times if one.backend == PADDED_LOOP}

    def cells(one: ScanTimes) -> list[str]:
        names = [one.batch.name, one.backend, f"{one.batch.tokens:,}"]
        if one.peak_bytes is None:
            loop = loops.get(one.batch.name)
            faster = f"{loop / one.both_ms:.1f}x" if loop else ""
            return [*names, f"{one.forward_ms:.1f}", f"{one.both_ms:.1f}", faster]
        bound, peak = chip_bound(one.batch), f"{one.peak_bytes / 2**30:.2f}"
        forward = f"{one.forward_ms:.3f}", f"{one.forward_ms / bound.forward_ms:.1f}x"
        both = f"{one.both_ms:.3f}", f"{one.both_ms / bound.both_ms:.1f}x"
        return [*names, *forward, *both, peak]

    columns = ["fwd ms", "fwd+bwd ms", "speed-up"]
    if any(one.peak_bytes is not None for one in times):
        columns = ["fwd ms", "/ bound", "fwd+bwd ms", "/ bound", "peak GiB"]
    title = f"selective_scan, float32, on {device}"
    return table(title, ["batch", "backend", "tokens", *columns], map(cells, times))


def bench_scan(device: str = "auto", sizes: str = "auto", json: Path | None = None) -> None:
    """Check the selective scan against its reference on this machine, and time it.

    Args:
        device: auto, cpu or cuda.
        sizes: Batches to time, separated by commas: peptides, voc, malnet16, malnet256, million;
            auto: peptides on a CPU, all on a GPU.
        json: Also write the measurements to this file.
    """
    where = resolve_device(device)
    batches = USUAL_SIZES[where.type] if sizes == "auto" else words_among(sizes, BATCHES, "sizes")
    if json is not None and not json.parent.is_dir():
        raise UserError(f"json must be a file in a folder that exists, got {str(json)!r}")

    environment = describe(where)
    stdout, stderr = Console(), Console(stderr=True)
    with stderr.status("checking the backends against the reference"):
        agreements = check_backends(where)
    stdout.print(agreement_table(agreements))
    times: list[ScanTimes] = []
    for name in batches:
        with stderr.status(f"timing {name}"):
            shape = BATCHES[name]
            fast = [each for each in scan.available_backends(where) if each != "reference"]
            times += [measure_scan(shape, backend, where) for backend in fast]
            # on a CPU the padded loop takes the place of the reference
            if where.type == "cpu" and shape.sequences * shape.longest < PADDED_LIMIT:
                times.append(measure_padded_loop(shape))
    stdout.print(times_table(times, str(environment["device"])))
    if json is not None:
        write_json(json, {"environment": environment, "agreement": agreements, "times": times})
    if not all(agreement.holds for agreement in agreements):
        raise SystemExit(1)

"""`graphmamba bench scan`: error and time of each backend of the selective scan on this machine.

Errors are against the reference in float64; times are of batches of random sequences with the
lengths of the benchmarks' graphs.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.console import Console, Group
from torch import Tensor

from graphmamba import ops
from graphmamba.environment import describe, resolve_device
from graphmamba.ops.backends import Backend
from graphmamba.parse import words_among
from graphmamba.studies.report import table, write_json

ROUNDING = 1e-6
"""Allowed error where plain PyTorch has none."""
CPU_SECONDS = 0.5
"""Total time of the repetitions of one measurement on a CPU."""
CACHE_BYTES = 200_000_000
"""Inputs take turns over this much memory, several times the cache of a GPU."""

Step = Callable[[], object]


@dataclass(frozen=True)
class BatchShape:
    """Size of a packed batch of sequences."""

    name: str
    sequences: int
    tokens: int
    longest: int
    inner: int
    """Channels."""
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


@dataclass(frozen=True)
class ScanInputs:
    """Arguments of `selective_scan`, and the gradient of its output."""

    leaves: dict[str, Tensor]
    """Differentiable arguments by name."""
    cu_seqlens: Int[Tensor, " boundaries"]
    out_grad: Float[Tensor, "steps inner"]


def random_lengths(shape: BatchShape, seed: int = 0) -> list[int]:
    """Draw log-normal lengths with exactly the total and the maximum of a batch."""
    rng = np.random.default_rng(seed)
    rest, others = shape.tokens - shape.longest, shape.sequences - 1
    weights = rng.lognormal(sigma=shape.spread, size=others)
    lengths = (rest * weights / weights.sum()).astype(int).clip(1, shape.longest)
    # make up for rounding and clipping, one token per sequence
    while missing := rest - int(lengths.sum()):
        has_room = lengths < shape.longest if missing > 0 else lengths > 1
        lengths[np.flatnonzero(has_room)[: abs(missing)]] += np.sign(missing)
    return rng.permutation([shape.longest, *lengths]).tolist()


def scan_inputs(
    shape: BatchShape, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0
) -> ScanInputs:
    """Generate a batch with the values of a freshly initialised Mamba block."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    boundaries = np.cumsum([0, *random_lengths(shape, seed)])
    steps, inner, state = shape.tokens, shape.inner, shape.state
    # step sizes are log-uniform between 0.001 and 0.1; the bias is their inverse softplus
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


@dataclass(frozen=True)
class Agreement:
    """Maximum error of a backend, in its worst tensor."""

    operation: str
    backend: str
    worst: str
    """`out`, or the input whose gradient is worst."""
    error: float
    allowed: float
    """Twice the error of the reference in float32."""

    @property
    def holds(self) -> bool:
        """Whether the error is allowed; NaN is not."""
        return self.error <= self.allowed


def check_backends(device: torch.device) -> list[Agreement]:
    """Compare outputs and gradients of scan and convolution with float64, for every backend."""
    shape = BatchShape("agreement", sequences=5, tokens=250, longest=120, inner=48)
    inputs = scan_inputs(shape, device)
    # in the order of a random permutation, as in the model
    order = torch.randperm(shape.tokens, generator=torch.Generator().manual_seed(0)).to(device)
    options: dict[str, object] = {"cu_seqlens": inputs.cu_seqlens, "order": order}
    weight = torch.rand(shape.inner, 4, generator=torch.Generator().manual_seed(1)) - 0.5
    u, bias = inputs.leaves["u"], inputs.leaves["delta_bias"]
    conv = {"x": u, "weight": weight.to(device), "bias": bias}
    return [
        _check(operation, backend, leaves, given, inputs.out_grad)
        for operation, leaves, given in (
            ("causal_conv1d", conv, options),
            ("selective_scan", inputs.leaves, {**options, "scatter": True}),
        )
        for backend in fast_backends(device)
    ]


def fast_backends(device: torch.device) -> list[Backend]:
    """List the backends on this device but the reference."""
    return [name for name in ops.available_backends(device) if name != "reference"]


def _check(
    name: str,
    backend: str,
    inputs: dict[str, Tensor],
    options: dict[str, object],
    out_grad: Tensor,
) -> Agreement:
    operation: Callable[..., Tensor] = getattr(ops, name)

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
            name, backend, key, error(found[key], exact), 2 * error(plain[key], exact) + ROUNDING
        )
        for key, exact in truth.items()
    ]
    # a NaN would be lost in the maximum
    wrong = [agreement for agreement in compared if not agreement.holds]
    return max(wrong or compared, key=lambda one: one.error / one.allowed)


def median_ms(steps: Sequence[Step], device: torch.device) -> float:
    """Median time of a step; `steps` differ in their data only, so that caches are cold."""
    if device.type == "cuda":
        from triton.testing import do_bench_cudagraph

        # in a CUDA graph, so that only the kernels are timed
        total = do_bench_cudagraph(lambda: [step() for step in steps], return_mode="median")
        return total / len(steps)
    for step in steps:
        step()
    times: list[float] = []
    while len(times) < 3 or sum(times) < 1e3 * CPU_SECONDS:  # noqa: PLR2004
        times.append(once_ms(steps[len(times) % len(steps)]))
    return median(times)


def once_ms(step: Step) -> float:
    """Time of a single call."""
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def peak_bytes(step: Step) -> int:
    """Peak CUDA memory of a step beyond what was allocated before it."""
    step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@dataclass(frozen=True)
class ScanTimes:
    """Time and memory of a backend on a batch."""

    batch: BatchShape
    backend: str
    forward_ms: float
    both_ms: float
    """Forward and backward pass, with the gradients of all inputs."""
    peak_bytes: int | None = None
    """CUDA memory of both passes beyond the inputs; None on a CPU."""


def measure_scan(shape: BatchShape, backend: Backend, device: torch.device) -> ScanTimes:
    """Time a backend in float32, with gate and softplus."""
    operation: Callable[..., Tensor] = partial(ops.selective_scan, backend=backend, check=False)

    def forward(inputs: ScanInputs) -> Tensor:
        return operation(**inputs.leaves, cu_seqlens=inputs.cu_seqlens)

    def both(inputs: ScanInputs) -> tuple[Tensor, ...]:
        leaves = list(inputs.leaves.values())
        return torch.autograd.grad(forward(inputs), leaves, inputs.out_grad)

    first = scan_inputs(shape, device)
    sets = min(ceil(CACHE_BYTES / sum(leaf.nbytes for leaf in first.leaves.values())), 8)
    inputs = [first, *(scan_inputs(shape, device, seed=seed) for seed in range(1, sets))]
    with torch.no_grad():
        forward_ms = median_ms([partial(forward, one) for one in inputs], device)
    both_ms = median_ms([partial(both, one) for one in inputs], device)
    peak = peak_bytes(partial(both, first)) if device.type == "cuda" else None
    return ScanTimes(shape, backend, forward_ms, both_ms, peak)


def agreement_table(agreements: Iterable[Agreement]) -> Group:
    """Make the table of errors."""
    rows = (
        [
            *(one.operation, one.backend, one.worst, f"{one.error:.1e}", f"{one.allowed:.1e}"),
            "ok" if one.holds else "WRONG",
        ]
        for one in agreements
    )
    columns = ["operation", "backend", "in", "error", "allowed", ""]
    return table("Worst error of output and gradients against float64", columns, rows)


def times_table(times: Iterable[ScanTimes], device: str) -> Group:
    """Make the table of times, and of memory on a GPU."""
    rows = (
        [
            *(one.batch.name, one.backend, f"{one.batch.tokens:,}"),
            *(f"{one.forward_ms:.3f}", f"{one.both_ms:.3f}"),
            "" if one.peak_bytes is None else f"{one.peak_bytes / 2**30:.2f}",
        ]
        for one in times
    )
    columns = ["batch", "backend", "tokens", "fwd ms", "fwd+bwd ms", "peak GiB"]
    return table(f"selective_scan, float32, on {device}", columns, rows)


def bench_scan(device: str = "auto", sizes: str = "auto", json: Path | None = None) -> None:
    """Check the selective scan against its reference on this machine, and time it.

    Args:
        device: auto, cpu or cuda.
        sizes: Batches to time, separated by commas: peptides, voc, malnet16, malnet256, million;
            auto: peptides on a CPU, all on a GPU.
        json: Also write the measurements to this file.
    """
    where = resolve_device(device)
    if sizes == "auto":
        sizes = ",".join(BATCHES) if where.type == "cuda" else "peptides"
    batches = words_among(sizes, BATCHES, "sizes")
    environment, stdout, stderr = describe(where), Console(), Console(stderr=True)
    with stderr.status("checking the backends against the reference"):
        agreements = check_backends(where)
    stdout.print(agreement_table(agreements))
    times: list[ScanTimes] = []
    for name in batches:
        with stderr.status(f"timing {name}"):
            times += [measure_scan(BATCHES[name], each, where) for each in fast_backends(where)]
    stdout.print(times_table(times, str(environment["device"])))
    if json is not None:
        write_json(json, {"environment": environment, "agreement": agreements, "times": times})
    if not all(agreement.holds for agreement in agreements):
        raise SystemExit(1)

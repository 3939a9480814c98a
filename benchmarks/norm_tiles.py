"""Tries tiles for the Triton kernels of the batch norm: those of one kernel changed at a time.

`norm.py` runs it on a GPU. Both kernels of a pass are timed together, since the second starts while
the first still runs; the first is timed alone too. Inputs take turns, so that caches are cold.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from multiprocessing import get_context
from statistics import median
from typing import Any, Literal

import torch
from rich.table import Table
from torch import Tensor

from graphmamba.bench.bound import FLOAT_BYTES
from graphmamba.bench.measure import cold_sets
from graphmamba.bench.tables import table
from graphmamba.bench.timing import Step

Which = Literal["sums", "apply"]
"""The first kernel of a pass, or the second."""

GHOSTS = 0.03
"""Share of rows that do not count, as batches of a captured step have."""
GRAPH_LAUNCHES = 48
REPLAYS = 8


@dataclass(frozen=True)
class Shape:
    """Rows that a norm of a training batch has."""

    name: str
    rows: int
    channels: int
    is_nodes: bool
    """`a + norm(b + x)`, as of nodes; else `a + relu(norm(x))`, as of edges."""

    def moved(self, which: Which, is_backward: bool) -> int:
        """Bytes that a kernel has to move."""
        read = 1 + self.is_nodes + is_backward
        # The first only reads them; the second writes rows and, forward, reads what is added.
        tensors = read if which == "sums" else read + 1 + (not is_backward)
        return tensors * self.rows * self.channels * FLOAT_BYTES


SHAPES = [
    Shape(f"{name} {'nodes' if is_nodes else 'edges'}", rows, channels, is_nodes)
    for name, channels, *sizes in (
        ("peptides", 96, 21_000, 43_000),
        ("voc", 96, 15_000, 87_000),
        ("pattern", 64, 3_800, 195_000),
        ("cluster", 48, 1_900, 69_000),
        ("cifar10", 52, 1_900, 15_000),
        ("malnet", 64, 22_000, 46_000),
    )
    for rows, is_nodes in zip(sizes, (True, False), strict=True)
]


@dataclass(frozen=True)
class Candidate:
    """What is changed: sizes of the tile of one kernel, or which kernels start early."""

    which: Which
    changed: dict[str, int]
    early: Literal["none", "second", "both"] = "second"

    @property
    def name(self) -> str:
        """As the tables have it."""
        words = [f"{name} {value}" for name, value in self.changed.items()]
        words += [] if self.early == "second" else [f"early: {self.early}"]
        return ", ".join(words) or "as it is"


CHANGES: list[dict[str, int]] = [
    {},
    {"rows": 32},
    {"rows": 32, "programs": 792},
    {"rows": 128, "warps": 8},
    {"programs": 264},
    {"programs": 792},
    {"channels": 64, "warps": 8},
    {"unroll": 1},
    {"unroll": 2},
]
CANDIDATES = [
    *(Candidate(which, changed) for which in ("sums", "apply") for changed in CHANGES),
    Candidate("apply", {}, early="none"),
    Candidate("apply", {}, early="both"),
]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, to be repeated."""

    kernel: Any
    grid: tuple[int, int]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    def __call__(self) -> None:
        """Launch it again."""
        self.kernel[self.grid](*self.arguments, **self.constants)


@dataclass(frozen=True)
class Found:
    """Times of one pass of one shape with one candidate."""

    shape: Shape
    candidate: Candidate
    is_backward: bool
    sums_us: float
    """The first kernel alone."""
    pass_us: float
    """Both."""

    @property
    def us(self) -> float:
        """Time of the kernel that was changed; of the second, what it adds to the first."""
        return self.sums_us if self.candidate.which == "sums" else self.pass_us - self.sums_us

    @property
    def terabytes(self) -> float:
        """What that kernel moves in a second."""
        return self.shape.moved(self.candidate.which, self.is_backward) / self.us / 1e6

    @property
    def entry(self) -> dict[str, Any]:
        """As the JSON file has it."""
        kernel = f"{'bwd_' if self.is_backward else ''}{self.candidate.which}"
        return {
            "kernel": kernel, "shape": self.shape, "candidate": self.candidate.name,
            "us": self.us, "terabytes_per_second": self.terabytes, "sums_us": self.sums_us,
            "pass_us": self.pass_us,
        }  # fmt: skip


@contextmanager
def candidate_in_place(candidate: Candidate) -> Iterator[None]:
    """Let the kernels run with it, forward and backward."""
    from graphmamba.encode.batch_norm import fused

    tiles, starts = fused.TILES, fused._starts
    names = candidate.which, f"bwd_{candidate.which}"
    changed = {name: replace(getattr(tiles, name), **candidate.changed) for name in names}
    fused.TILES = replace(tiles, **changed)
    if candidate.early != "second":
        fused._starts = {"none": _late, "both": _both_early}[candidate.early]
    try:
        yield
    finally:
        fused.TILES, fused._starts = tiles, starts


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """Run kernels as ever, and note their launches."""
    from graphmamba.encode.batch_norm import fused

    launches: list[Launch] = []

    class Recorder:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            def launch(*arguments: Any, **constants: Any) -> None:
                launches.append(Launch(self.kernel, grid, arguments, constants))
                launches[-1]()

            return launch

    names = [name for name in vars(fused) if name.startswith("batch_norm_")]
    kernels = {name: getattr(fused, name) for name in names}
    for name, kernel in kernels.items():
        setattr(fused, name, Recorder(kernel))
    try:
        yield launches
    finally:
        for name, kernel in kernels.items():
            setattr(fused, name, kernel)


def record(shape: Shape, candidate: Candidate, sets: Sequence[list[Tensor]]) -> list[list[Launch]]:
    """Run both passes on each set of rows; return the four launches of each."""
    from graphmamba.encode.batch_norm import fused

    device = sets[0][0].device
    ones, zeros = torch.ones(shape.channels, device=device), torch.zeros((), device=device)
    count = torch.tensor(shape.rows - int(GHOSTS * shape.rows), device=device)
    activation = "none" if shape.is_nodes else "relu"
    settings = activation, [0.0, 0.0], [0, 0], True
    found = []
    for x, grad, after, before in sets:
        added = before if shape.is_nodes else None
        with candidate_in_place(candidate), recorded_launches() as launches:
            _, kept = fused.forward(
                *(x, ones, ones, added, after, None, None, count, ones.clone(), ones.clone()),
                *(zeros.long(), *settings, 0.1, 1e-5),
            )
            fused.backward(grad, kept, x, ones, ones, added, None, None, count, *settings)
        found.append(launches)
    return found


def draw(shape: Shape) -> list[list[Tensor]]:
    """Draw x, its gradient and what is added, as often as keeps caches cold."""
    size = shape.moved("apply", is_backward=False)
    shapes = 4, shape.rows, shape.channels
    return [list(torch.randn(shapes, device="cuda")) for _ in range(cold_sets(size))]


def measure_tiles(shapes: Sequence[Shape], candidates: Sequence[Candidate]) -> list[Found]:
    """Time every candidate for every shape."""
    found = []
    for shape in shapes:
        sets = draw(shape)
        for candidate in candidates:
            launches = record(shape, candidate, sets)
            for is_backward in (False, True):
                pair = [each[2:] if is_backward else each[:2] for each in launches]
                sums = graph_us([first for first, _ in pair])
                both = graph_us([partial(_one_by_one, each) for each in pair])
                found.append(Found(shape, candidate, is_backward, sums, both))
    return found


def graph_us(steps: Sequence[Step]) -> float:
    """Time one of equal steps in a short CUDA graph: quick, and good to a tenth."""
    laps = ceil(GRAPH_LAUNCHES / len(steps))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # Not `torch.cuda.graph`, which collects garbage each time: longer than the measurement.
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for _ in range(laps):
            for step in steps:
                step()
        graph.capture_end()
    start, *ends = (torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1))
    graph.replay()
    start.record()
    for end in ends:
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    times = [first.elapsed_time(end) for first, end in zip([start, *ends], ends, strict=False)]
    return 1e3 * median(times) / (laps * len(steps))


def compile_ahead(pool: ProcessPoolExecutor) -> list[Future[None]]:
    """Start to compile all kernels, into Triton's cache on disk."""
    alike: dict[tuple[int, bool], list[Shape]] = {}
    for shape in SHAPES:
        alike.setdefault((shape.channels, shape.is_nodes), []).append(shape)
    # Shapes with the same kernels go to one process, so that no two compile them at once.
    return [
        pool.submit(compile_candidate, shapes, candidate)
        for candidate in CANDIDATES
        for shapes in alike.values()
    ]


def compile_pool(processes: int) -> ProcessPoolExecutor:
    """Return processes of their own: CUDA does not live through a fork."""
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


def compile_candidate(shapes: Sequence[Shape], candidate: Candidate) -> None:
    """Run the kernels once on each shape."""
    for shape in shapes:
        rows = torch.zeros((4, shape.rows, shape.channels), device="cuda")
        record(shape, candidate, [list(rows)])


def tile_tables(found: Iterable[Found]) -> Iterator[Table]:
    """Show a table for each kernel: candidates below one another, shapes side by side."""
    every = list(found)
    shapes = list(dict.fromkeys(one.shape for one in every))
    for which, is_backward in ((a, b) for b in (False, True) for a in ("sums", "apply")):
        times: dict[str, dict[Shape, Found]] = {}
        for one in every:
            if one.candidate.which == which and one.is_backward is is_backward:
                times.setdefault(one.candidate.name, {})[one.shape] = one
        yield table(
            f"{'bwd_' if is_backward else ''}{which}: us (TB/s), and us of the pass",
            ["candidate", *(f"{one.name}\n{one.rows:,} x {one.channels}" for one in shapes)],
            (
                [
                    name,
                    *(
                        f"{row[each].us:.1f} ({row[each].terabytes:.1f})\n{row[each].pass_us:.1f}"
                        for each in shapes
                    ),
                ]
                for name, row in times.items()
            ),
        )


def _late(device: torch.device) -> tuple[dict[str, bool], dict[str, bool]]:  # noqa: ARG001 - as it is called
    return {"PDL": False}, {"PDL": False}


def _both_early(device: torch.device) -> tuple[dict[str, bool], dict[str, bool]]:
    # The first kernel waits for whatever precedes it.
    early = {"PDL": True, "launch_pdl": True} if device.type == "cuda" else {"PDL": False}
    return early, early


def _one_by_one(launches: Sequence[Launch]) -> None:
    for launch in launches:
        launch()

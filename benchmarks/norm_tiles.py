"""Tries tiles for the Triton kernels of the batch norm: those of one kernel changed at a time.

`norm.py` runs it on a GPU. Both kernels of a pass are timed together, since the second starts while
the first still runs; the first is timed alone too. Inputs take turns, so that caches are cold.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from norm_launches import CANDIDATES, SHAPES, Candidate, Launch, Shape, record
from rich.table import Table
from torch import Tensor

from graphmamba.bench.measure import cold_sets
from graphmamba.bench.tables import table
from graphmamba.bench.timing import Step

GRAPH_LAUNCHES = 48
REPLAYS = 8


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


def _one_by_one(launches: Sequence[Launch]) -> None:
    for launch in launches:
        launch()

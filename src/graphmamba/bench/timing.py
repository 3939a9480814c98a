"""How long a step takes, and how much memory it needs on top of what is already there."""

import time
from collections.abc import Callable, Sequence
from math import ceil
from statistics import median

import torch

Step = Callable[[], object]

BUDGET_S = 0.5
"""How long one measurement goes on repeating."""
GRAPH_MS = 2.0
"""A captured graph lasts at least this long, so that its launch does not count."""


def median_ms(steps: Sequence[Step], device: torch.device) -> float:
    """Time one step by the median; equal steps on other data take turns, to keep caches cold."""
    if device.type == "cuda":
        return _replayed_ms(steps)
    for step in steps:
        step()
    times = [_called_ms(steps[0])]
    while len(times) < _repeats(times[0]):
        times.append(_called_ms(steps[len(times) % len(steps)]))
    return median(times)


def once_ms(step: Step) -> float:
    """Time a single call on the CPU, for what is too slow to be repeated."""
    return _called_ms(step)


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


def _called_ms(step: Step) -> float:
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def _replayed_ms(steps: Sequence[Step]) -> float:
    """Replay a CUDA graph of the steps: what is left is the kernels' own time."""
    _warm_up(steps)
    single_ms = _events_ms(lambda: [step() for step in steps]) / len(steps)
    laps = min(ceil(GRAPH_MS / (single_ms * len(steps))), 20)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(laps):
            for step in steps:
                step()
    # The first replays also bring the clocks up.
    repeats = _repeats(_events_ms(graph.replay))
    times = [_events_ms(graph.replay) for _ in range(2 * repeats)][repeats:]
    return median(times) / (laps * len(steps))


def _warm_up(steps: Sequence[Step]) -> None:
    """Compile and allocate on a side stream, as capturing asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            for step in steps:
                step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def _events_ms(step: Step) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)

"""Work recorded as CUDA graphs, one for each size of batch: a replay is one launch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.sampler import Ids
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.side_streams import Lane, with_side_streams

PRIORITIES: dict[Lane, int] = {"mixer": -3, "edges": -1}
"""Of lanes, the most urgent the least: small kernels, of which many follow one another, pass before
those that fill the GPU by themselves."""
MAIN_PRIORITY, ASIDE_PRIORITY = -2, 0
"""Of all else, and of what nobody waits for."""
ASIDES = 4
"""Streams for what nobody waits for."""


@dataclass(frozen=True)
class CaptureStreams:
    """Streams that graphs are captured on; cuBLAS takes work space for each that it runs on."""

    main: torch.cuda.Stream
    sides: dict[Lane, torch.cuda.Stream]
    asides: tuple[torch.cuda.Stream, ...]
    """For what nobody waits for."""

    @classmethod
    def on(cls, device: torch.device) -> "CaptureStreams":
        """Take streams of a GPU."""
        return cls(
            torch.cuda.Stream(device, priority=MAIN_PRIORITY),
            {lane: torch.cuda.Stream(device, priority=each) for lane, each in PRIORITIES.items()},
            tuple(torch.cuda.Stream(device, priority=ASIDE_PRIORITY) for _ in range(ASIDES)),
        )


class CapturedBatches:
    """Does the same work on one batch after another, without Python once each size was seen.

    The first batch of a size is worked on as Python says, which compiles kernels and allocates
    what stays; the second is captured. Both count: nothing is done twice, or in vain. What the
    work reads and writes beyond a batch must stay where it is, and results go into tensors that
    the work does not allocate.

    Args:
        work: Called with the numbers of the graphs, on the GPU, and the batch's size.
        sizes: Sizes that batches are padded to.
        streams: Where; those of other work that runs before or after will do.
        after_capture: Called when work was captured, before it runs.
    """

    def __init__(
        self,
        work: Callable[[Int[Tensor, " slots"], StaticSize], None],
        sizes: StaticSizes,
        streams: CaptureStreams,
        after_capture: Callable[[], None] = lambda: None,
    ) -> None:
        self._work, self._sizes, self._after_capture = work, sizes, after_capture
        self._streams, slots = streams, sizes.sizes[0].graphs
        self._ids = torch.full((slots,), -1, dtype=torch.int64, device=streams.main.device)
        self._seen: set[StaticSize] = set()
        self._graphs: dict[StaticSize, torch.cuda.CUDAGraph] = {}
        # Graphs are replayed one after another, so that they can share their memory.
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, ids: Ids) -> StaticSize:
        """Work on these graphs; returns the size of their batch."""
        size = self._sizes.choose(ids)
        self._ids.copy_(self._sizes.padded(ids).pin_memory(), non_blocking=True)
        if size in self._graphs:
            self._graphs[size].replay()
        elif size in self._seen:
            self._capture(size)
            self._graphs[size].replay()
        else:
            self._seen.add(size)
            self._try_out(size)
        return size

    def _try_out(self, size: StaticSize) -> None:
        """Work as Python says, on the stream that graphs are captured on."""
        self._streams.main.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._streams.main), with_side_streams(self._streams.sides):
            self._work(self._ids, size)
        torch.cuda.current_stream().wait_stream(self._streams.main)
        # Nothing else runs on that stream: what its allocator holds back would never be used again.
        torch.cuda.empty_cache()

    def _capture(self, size: StaticSize) -> None:
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.graph(graph, pool=self._pool, stream=self._streams.main),
            with_side_streams(self._streams.sides),
        ):
            self._work(self._ids, size)
        self._after_capture()
        self._graphs[size] = graph

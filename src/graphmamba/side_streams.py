"""Branches of a model side by side on a GPU, where a captured graph can hold them so."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor

Lane = Literal["mixer", "edges"]
"""What runs beside the node rows: line-ups and the exchange along them; the edge rows."""


class SideStreams:
    """A stream for each lane, and what was left there for the next branch of the lane.

    Args:
        streams: By lane.
    """

    def __init__(self, streams: Mapping[Lane, torch.cuda.Stream]) -> None:
        self.streams = streams
        self.left: dict[Lane, Tensor] = {}


_SIDES: ContextVar[SideStreams | None] = ContextVar("_SIDES", default=None)


@contextmanager
def with_side_streams(streams: Mapping[Lane, torch.cuda.Stream]) -> Iterator[None]:
    """Let modules put their branches on these streams, until the end of the context.

    Small kernels leave most of a GPU idle, and local and global exchange do not wait for each
    other, nor edges for what becomes of the nodes. Launched one by one they gain nothing; inside of
    a captured graph they overlap, in the backward pass too, whose operations run on the streams of
    the forward pass.
    """
    before = _SIDES.set(SideStreams(streams))
    try:
        yield
    finally:
        _SIDES.reset(before)


class Branch:
    """One branch of a model: on the stream of its lane if there is one, else where all runs.

    It waits for what the current stream was given until it is made, not until it is entered.

    Args:
        inputs: What the branch reads: what the current stream has made must not be given away
            before the branch is done with it; what the lane has made itself waits for nobody.
        lane: Where it runs.
        is_on: Whether it runs beside the others; else it is as if there were no streams. (A
            compiler orders kernels by itself.)

    Example:
        >>> x = torch.ones(2)
        >>> branch = Branch([x])
        >>> with branch:
        ...     near = x + 1
        >>> far = x + 2
        >>> branch.join(near)
        >>> near + far
        tensor([5., 5.])
    """

    def __init__(
        self, inputs: Iterable[Tensor], lane: Lane = "mixer", *, is_on: bool = True
    ) -> None:
        self._lane: Lane = lane
        self._sides = _SIDES.get() if is_on and not torch.compiler.is_compiling() else None
        self._side = None if self._sides is None else self._sides.streams[lane]
        self._context = None if self._side is None else torch.cuda.stream(self._side)
        if self._sides is not None and self._side is not None:
            left = self._sides.left.get(lane)
            awaited = [each for each in inputs if each is not left]
            if awaited:
                self._side.wait_stream(torch.cuda.current_stream())
            for each in awaited:
                each.record_stream(self._side)

    def __enter__(self) -> None:
        """Begin the branch."""
        if self._context is not None:
            self._context.__enter__()

    def __exit__(self, *mistake: object) -> None:
        """Go on with the other."""
        if self._context is not None:
            self._context.__exit__(*mistake)

    def join(self, *results: Tensor) -> None:
        """Wait for the branch, which made these."""
        if self._side is not None:
            here = torch.cuda.current_stream()
            here.wait_stream(self._side)
            for each in results:
                each.record_stream(here)

    def leave(self, result: Tensor) -> Tensor:
        """Return what the branch is making, for the next branch of its lane alone."""
        if self._sides is not None:
            self._sides.left[self._lane] = result
        return result


def join_lanes() -> None:
    """Wait for all that was left in a lane."""
    sides = _SIDES.get()
    if sides is not None:
        for lane in sides.left:
            torch.cuda.current_stream().wait_stream(sides.streams[lane])
        sides.left.clear()

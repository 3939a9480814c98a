"""Runs of neighbouring graphs with about as many rows, worked on side by side."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.tables import Boundaries, owner_of
from graphmamba.data.workers import run_all

ROWS = 1 << 19
"""Rows of one span: what is computed from them stays in the cache of a core."""


@dataclass(frozen=True)
class Span:
    """Neighbouring graphs and their rows."""

    graphs: slice
    rows: slice
    owner: Int[Tensor, " rows"]
    """Graph of each row, counted from the first graph of the span."""


def for_each_span(ptr: Boundaries, work: Callable[[Span], None], title: str) -> None:
    """Call `work` with every span of graphs, several at once; each must write rows of its own.

    Args:
        ptr: First row of each graph, and the number of all rows.
        work: What is done with a span.
        title: What a bar on the terminal says, where there is more than one span.
    """
    cuts = torch.searchsorted(ptr, torch.arange(0, int(ptr[-1]), ROWS)[1:])
    ends = sorted({0, *cuts.tolist(), len(ptr) - 1})

    def call(place: int) -> None:
        first, last = ends[place : place + 2]
        inside = ptr[first : last + 1]
        rows = slice(int(inside[0]), int(inside[-1]))
        work(Span(slice(first, last), rows, owner_of(inside - inside[0])))

    places = range(len(ends) - 1)
    if len(places) == 1:
        # a pool of threads takes longer to set up than a small set to work on
        call(0)
    else:
        run_all(call, places, title)

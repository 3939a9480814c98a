"""Where the rows of chosen graphs are in a store, and where they go in a batch."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from graphmamba.data.tables import Numbers, Table
from graphmamba.errors import UserError

Bounds = Int[np.ndarray, "tables boundaries"]


class Plan(NamedTuple):
    """The rows of chosen graphs."""

    ids: Numbers
    """The graphs."""
    starts: Int[np.ndarray, "tables graphs"]
    """First row of each graph in its table."""
    ptrs: Int[np.ndarray, "tables boundaries"]
    """First row of each graph in the batch, and the number of all rows."""


def bounds_of(tables: Mapping[str, Table]) -> Bounds:
    """First row of every graph in each table, so that one look-up serves all tables."""
    return np.stack([table.ptr for table in tables.values()])


def check_ids(bounds: Bounds, ids: Numbers) -> None:
    """Reject graphs that are not there."""
    graphs = bounds.shape[1] - 1
    # Negative numbers, read without their sign, are the largest.
    if len(ids) and ids.view(np.uint64).max() >= graphs:
        wrong = ids[(ids < 0) | (ids >= graphs)][0]
        raise UserError(f"ids must hold graphs 0 to {graphs - 1}, got {wrong}")


def make_plan(bounds: Bounds, ids: Numbers) -> Plan:
    """Look up the rows of graphs."""
    check_ids(bounds, ids)
    starts = bounds.take(ids, axis=1)
    ptrs = np.zeros((len(bounds), len(ids) + 1), np.int64)
    np.subtract(bounds.take(ids + 1, axis=1), starts, out=ptrs[:, 1:])
    np.cumsum(ptrs, axis=1, out=ptrs)
    return Plan(ids, starts, ptrs)

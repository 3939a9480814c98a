"""What a compiled gather has to do: the columns of a store as rows of plain numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from graphmamba.data.tables import BY_SOURCE, ORIGIN, Column, Table, is_pairs

COPY, REPEAT, ADD, OWNER = range(4)
"""What is done with a column: copy rows, repeat a graph's only row, add to numbers, or write the
place of each row's graph in the batch."""
UNITS = (8, 4, 1)
"""Bytes that can be copied at a time."""
MOST_VALUES = (1 << 31) - 1024
"""Values of a column in a batch: kernels of the GPU count them in 32 bits, up to a block's end."""

Jobs = Int[np.ndarray, "jobs 6"]
"""For each: task, table, bytes of a value, values of a row, address of the column, and the table
whose rows before a graph are added to its numbers, counted from 1; 0 adds nothing."""
TABLE, WIDTH = 1, 3
"""Columns of it with the table, and with the values of a row."""


class Out(NamedTuple):
    """A column of a batch."""

    name: str
    table: int
    lines: int
    """Jobs that it takes: two for pairs, which lie one line after the other."""
    shape: tuple[int, ...]
    """Shape of a row."""
    dtype: torch.dtype
    counts: int | None = None
    """Table whose rows the column numbers: 0 for nodes, 1 for edges, None for neither."""

    def size(self, rows: int) -> tuple[int, ...]:
        """Shape of the column."""
        return (rows, *self.shape) if self.lines == 1 else (self.lines, rows)


def list_outs(tables: Mapping[str, Table]) -> list[Out]:
    """Columns of a batch; the last is `source_order`, left out where nobody asks for it."""
    found = [
        _out(name, number, column)
        for number, table in enumerate(tables.values())
        for name, column in table.columns.items()
        if name != ORIGIN
    ]
    found.sort(key=lambda out: out.name == BY_SOURCE)
    return [Out("batch", 0, 1, (), torch.int64), *found]


def _out(name: str, number: int, column: Column) -> Out:
    if is_pairs(name):
        return Out(name, number, 2, (), torch.int64, counts=0)
    shape = tuple(column.values.shape[1:])
    return Out(name, number, 1, shape, column.dtype, counts=1 if name == BY_SOURCE else None)


def list_jobs(tables: Mapping[str, Table], outs: Sequence[Out]) -> Jobs:
    """Say how each column is made; the addresses hold only as long as the columns do."""
    columns = {name: column for table in tables.values() for name, column in table.columns.items()}
    jobs: list[tuple[int, ...]] = []
    for out in outs:
        jobs += [(OWNER, 0, 8, 1, 0, 0)] if out.name == "batch" else _jobs(out, columns[out.name])
    return np.array(jobs, np.int64)


def _jobs(out: Out, column: Column) -> list[tuple[int, ...]]:
    values, address = column.values, column.values.data_ptr()
    size, width = values.element_size(), math.prod(out.shape)
    if out.counts is not None or values.dtype != column.dtype:
        shift = 0 if out.counts is None else out.counts + 1
        step = values.nbytes // out.lines
        lines = range(out.lines)
        return [(ADD, out.table, size, width, address + line * step, shift) for line in lines]
    # The columns of a file may begin at any byte.
    unit = next(unit for unit in UNITS if (address | width * size) % unit == 0)
    task = REPEAT if column.is_constant else COPY
    return [(task, out.table, unit, width * size // unit, address, 0)]

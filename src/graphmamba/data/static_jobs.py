"""What the gather of static batches has to do: columns of the store as rows of plain numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data import gather_jobs
from graphmamba.data.gather_jobs import MOST_VALUES, Out, list_outs
from graphmamba.data.tables import BY_SOURCE, LABELS, Column, Table
from graphmamba.errors import UserError

COPY, REPEAT, PAIRS, ORDER, BEGIN, OWNER = range(6)
"""What is done with a column: copy rows, repeat a graph's only row, move numbers of nodes, or of
edges, move the first edge of each node, or write the place of each row's graph."""
ALIGNED = 256
"""Bytes that a column begins at a multiple of."""
BLOCK = 512
"""Values that a program writes."""

Begins = Mapping[str, Int[Tensor, " nodes"]]
"""First edge of each node in its graph, by target and by source, under the names of columns."""
Told = Int[np.ndarray, "jobs 13"]
"""For each: task, table, bytes of a value as it is kept, values of a row, address of the column,
table whose rows before a graph are added (counted from 1; 0 adds nothing), bytes of a value as it
is written, whether padding graphs are filled, with what, whether the column has rows, where it is
written, how many values, and the first program that works on it."""
VALUE_BYTES, WRITTEN_AT, VALUES, FIRST_PROGRAM = 6, 10, 11, 12
"""Columns of it that are read or entered when the size of a batch is known: bytes of a value as it
is written, and the last three."""


class Place(NamedTuple):
    """Where a column lies in the memory of a batch."""

    out: Out
    start: int
    end: int
    """Bytes."""
    shape: tuple[int, ...]


def static_outs(tables: Mapping[str, Table], begins: Begins) -> list[Out]:
    """Columns of a batch; the last are those that go with `source_order`, which precedes them."""
    found = [Out(name, 0, 1, (), torch.int32) for name in begins]
    return [*list_outs(tables), *found]


def static_jobs(tables: Mapping[str, Table], outs: Sequence[Out], begins: Begins) -> Told:
    """Say how each column is made; where it goes depends on the size of the batch."""
    columns = {name: column for table in tables.values() for name, column in table.columns.items()}
    jobs: list[tuple[int, ...]] = []
    for out in outs:
        if out.name == "batch":
            jobs.append((OWNER, 0, 8, 1, 0, 0, 8, 0, 0, 0))
        elif out.name in begins:
            first = begins[out.name]
            jobs.append((BEGIN, 0, 4, 1, first.data_ptr(), 2, 4, 0, 0, int(first.numel() > 0)))
        else:
            jobs += _jobs(out, columns[out.name])
    return np.pad(np.array(jobs, np.int64), ((0, 0), (0, 3)))


def _jobs(out: Out, column: Column) -> list[tuple[int, ...]]:
    is_label, has_rows = out.name in LABELS, int(column.values.numel() > 0)
    if is_label:
        # Copied value by value, so that each can be another.
        task = REPEAT if column.is_constant else COPY
        size, width = column.values.element_size(), math.prod(out.shape)
        address, bytes_ = column.values.data_ptr(), column.dtype.itemsize
        kept = (task, out.table, size, width, address, 0)
        return [(*kept, bytes_, 1, _missing(column.dtype), has_rows)]
    told = gather_jobs.list_jobs({"": Table(np.zeros(1, np.int64), {out.name: column})}, [out])
    found: list[tuple[int, ...]] = []
    for task, table, size, width, address, shift in told.tolist():
        moved = PAIRS if out.counts == 0 else ORDER if out.name == BY_SOURCE else COPY
        is_added = task == gather_jobs.ADD
        numbers = (moved if is_added else task, table, size, width, address, shift)
        found.append((*numbers, 8 if is_added else size, 0, 0, has_rows))
    return found


def _missing(dtype: torch.dtype) -> int:
    """Bits of what stands for a missing label."""
    if not dtype.is_floating_point:
        return -1
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return int(torch.tensor(float("nan"), dtype=dtype).view(words[dtype.itemsize]))


def place_columns(
    jobs: Told, outs: Sequence[Out], rows: Sequence[int]
) -> tuple[Told, list[Place], int]:
    """Enter where columns of these rows go, one behind the other; returns also how many bytes."""
    told, places, end, job = jobs.copy(), list[Place](), 0, 0
    for out in outs:
        shape = out.size(rows[out.table] + int(jobs[job, 0] == BEGIN))
        size = math.prod(shape) * out.dtype.itemsize
        places.append(Place(out, end, end + size, shape))
        for line in range(out.lines):
            told[job, WRITTEN_AT] = end + line * (size // out.lines)
            told[job, VALUES] = size // out.lines // told[job, VALUE_BYTES]
            job += 1
        end += -(-size // ALIGNED) * ALIGNED
    most = told[:, VALUES].max()
    if most > MOST_VALUES:
        raise UserError(f"size must leave each column at most {MOST_VALUES} values, got {most}")
    programs = -(-told[:, VALUES] // BLOCK)
    told[:, FIRST_PROGRAM] = programs.cumsum() - programs
    return told, places, end

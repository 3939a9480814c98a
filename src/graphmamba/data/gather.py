"""Making batches: copies the rows of chosen graphs from a store to a batch."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor

from graphmamba.data.tables import BY_SOURCE, HIDDEN, ORIGIN, Column, Numbers, Table, is_pairs
from graphmamba.errors import UserError

Bounds = Int[np.ndarray, "tables boundaries"]


class Plan(NamedTuple):
    """Positions of the rows of chosen graphs."""

    ids: Numbers
    """The graphs."""
    starts: Int[np.ndarray, "tables graphs"]
    """First row of each graph in its table."""
    ptrs: Int[np.ndarray, "tables boundaries"]
    """First row of each graph in the batch, and the number of all rows."""


def bounds_of(tables: Mapping[str, Table]) -> Bounds:
    """First row of every graph, for all tables."""
    return np.stack([table.ptr for table in tables.values()])


def check_ids(bounds: Bounds, ids: Numbers) -> None:
    """Reject indices of graphs that are out of range."""
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


COPY, REPEAT, ADD, OWNER = range(4)
"""Tasks: copy rows, repeat the only row of a graph, shift indices, or write the index of the graph
of each row."""
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


def send(numbers: Int64[np.ndarray, "*shape"], device: torch.device) -> Tensor:
    """Copy numbers to a device, in the order of its stream.

    They go through pinned memory, which PyTorch does not reuse before the copy is done. Pageable
    memory might be read late, when it already holds a later batch.
    """
    tensor = torch.from_numpy(numbers)
    held = tensor.pin_memory() if device.type == "cuda" else tensor
    return held.to(device, non_blocking=True)


class HostGather:
    """Makes batches by a Numba function that releases the GIL."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        # The addresses of the jobs hold only as long as the columns do.
        self._tables = tables
        self._bounds, self.outs = bounds_of(tables), list_outs(tables)
        self._jobs = list_jobs(tables, self.outs)

    def plan(self, ids: Numbers) -> Plan:
        """Look up the rows of graphs."""
        return make_plan(self._bounds, ids)

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Allocate all columns, then write them in one call."""
        from graphmamba.data.gather_kernels import fill

        made = {"ptr": torch.from_numpy(plan.ptrs[0]), "graph_key": torch.from_numpy(plan.ids)}
        addresses = []
        for each in self.outs if by_source else self.outs[:-1]:
            size = each.size(int(plan.ptrs[each.table, -1]))
            out = made[each.name] = torch.empty(size, dtype=each.dtype)
            step = out.nbytes // each.lines
            addresses += [out.data_ptr() + line * step for line in range(each.lines)]
        jobs = self._jobs[: len(addresses)]
        fill(jobs, np.array(addresses, np.int64), plan.ids, plan.starts, plan.ptrs)
        return made


Numbered = Int[Tensor, "..."]


class DeviceGather:
    """Makes batches by indexing on the device, with one copy to it and no wait."""

    def __init__(self, tables: Mapping[str, Table], device: torch.device) -> None:
        self._tables, self._device = tables, device
        self._bounds, self.outs = bounds_of(tables), list_outs(tables)

    def plan(self, ids: Numbers) -> Plan:
        """Look up the rows of graphs."""
        return make_plan(self._bounds, ids)

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Return all columns, table by table."""
        ids, ptrs, moves = self._send(plan)
        made = {"ptr": ptrs[0], "graph_key": ids}
        for number, table in enumerate(self._tables.values()):
            # The size is known here; torch would have to ask the device for it.
            row = torch.arange(int(plan.ptrs[number, -1]), device=self._device)
            owner = torch.searchsorted(ptrs[number, 1:], row, right=True)
            place = row + moves[number, owner]
            if number == 0:
                made["batch"] = owner
            for name, column in table.columns.items():
                if is_pairs(name):
                    made[name] = column.values.index_select(1, place) + ptrs[0, owner]
                elif name == BY_SOURCE and by_source:
                    made[name] = column.values.index_select(0, place) + ptrs[1, owner]
                elif name not in HIDDEN:
                    rows = ids[owner] if column.is_constant else place
                    made[name] = column.values.index_select(0, rows).to(column.dtype)
        return made

    def _send(self, plan: Plan) -> tuple[Numbered, Numbered, Numbered]:
        """Move the graphs, where they begin, and how far their rows move, all at once."""
        graphs, tables = len(plan.ids), len(plan.ptrs)
        packed = np.zeros((1 + 2 * tables, graphs + 1), np.int64)
        packed[0, :graphs], packed[1 : 1 + tables] = plan.ids, plan.ptrs
        np.subtract(plan.starts, plan.ptrs[:, :-1], out=packed[1 + tables :, :graphs])
        sent = send(packed, self._device)
        return sent[0, :graphs], sent[1 : 1 + tables], sent[1 + tables :]


@runtime_checkable
class Gather(Protocol):
    """Base class: makes the columns of a batch on the device of the store."""

    outs: list[Out]
    """All columns that a batch may have."""

    def plan(self, ids: Numbers) -> Plan:
        """Look up the rows of graphs."""

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Return the columns of the graphs of a plan, `batch`, `ptr` and `graph_key` among them."""


def make_gather(tables: Mapping[str, Table], device: torch.device) -> Gather:
    """Choose the implementation for a device; all give the same bits."""
    if device.type == "cpu":
        return HostGather(tables)
    if device.type == "cuda" and find_spec("triton"):
        from graphmamba.data.gather_triton import TritonGather

        return TritonGather(tables, device)
    return DeviceGather(tables, device)

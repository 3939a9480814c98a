"""The rows of chosen graphs, one graph after another: index arithmetic, on any device."""

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.tables import BY_SOURCE, HIDDEN, ORIGIN, Column, Numbers, Table, is_pairs

UNITS = (8, 4, 1)
"""Bytes that the kernel can copy at a time."""


class Plan(NamedTuple):
    """Where the rows of chosen graphs are, and where they go."""

    ids: Numbers
    """The graphs."""
    starts: Int[np.ndarray, "tables graphs"]
    """First row of each graph in its table."""
    ptrs: Int[np.ndarray, "tables boundaries"]
    """First row of each graph in the batch."""


def make_plan(tables: Mapping[str, Table], ids: Numbers) -> Plan:
    """Look up the rows of graphs."""
    starts = np.empty((len(tables), len(ids)), np.int64)
    ptrs = np.zeros((len(tables), len(ids) + 1), np.int64)
    for number, table in enumerate(tables.values()):
        starts[number] = table.ptr[ids]
        np.cumsum(table.ptr[ids + 1] - starts[number], out=ptrs[number, 1:])
    return Plan(ids, starts, ptrs)


class _Out(NamedTuple):
    """A column that the kernel writes."""

    name: str
    table: int
    lines: int
    """Jobs of the kernel that it takes: two for pairs, which lie one line after the other."""
    shape: tuple[int, ...]
    """Shape of a row."""
    dtype: torch.dtype


class HostGather:
    """Makes batches on the CPU by one compiled function, which leaves Python free meanwhile."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        from graphmamba.data.gather_kernels import OWNER, fill

        self._fill = fill
        # The addresses hold only as long as the columns do.
        self._tables = tables
        self._outs = [_Out("batch", 0, 1, (), torch.int64)]
        jobs: list[tuple[int, ...]] = [(OWNER, 0, 8, 1, 0, 0)]
        found = [
            (name, number, column)
            for number, table in enumerate(tables.values())
            for name, column in table.columns.items()
            if name != ORIGIN
        ]
        # The last is left out where nobody asks for it.
        for name, number, column in sorted(found, key=lambda each: each[0] == BY_SOURCE):
            lines = 2 if is_pairs(name) else 1
            shape = () if is_pairs(name) else tuple(column.values.shape[1:])
            self._outs.append(_Out(name, number, lines, shape, column.dtype))
            jobs += _jobs(name, number, column)
        self._jobs = np.array(jobs, np.int64)

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Allocate all columns, then write them in one call."""
        rows = plan.ptrs[:, -1].tolist()
        made, addresses = {}, []
        for name, table, lines, shape, dtype in self._outs if by_source else self._outs[:-1]:
            size = (rows[table], *shape) if lines == 1 else (lines, rows[table])
            out = made[name] = torch.empty(size, dtype=dtype)
            address = out.data_ptr()
            addresses.append(address)
            if lines > 1:
                addresses.append(address + out.nbytes // lines)
        shifts = np.zeros((3, len(plan.ids)), np.int64)
        shifts[1:] = plan.ptrs[:2, :-1]
        jobs = self._jobs[: len(addresses)]
        self._fill(jobs, np.array(addresses, np.int64), *plan, shifts)
        return made

    def numbers(self, numbers: Int[np.ndarray, "..."]) -> Int[Tensor, "..."]:
        """Hand over what was computed on the host."""
        return torch.from_numpy(numbers)


def _jobs(name: str, table: int, column: Column) -> list[tuple[int, ...]]:
    """Say what the kernel has to do: task, table, bytes, values of a row, address, shift."""
    from graphmamba.data.gather_kernels import ADD, COPY, REPEAT

    values, address = column.values, column.values.data_ptr()
    size, width = values.element_size(), math.prod(values.shape[1:])
    if is_pairs(name):
        return [(ADD, table, size, 1, address + line * values.nbytes // 2, 1) for line in (0, 1)]
    if name == BY_SOURCE:
        return [(ADD, table, size, 1, address, 2)]
    if values.dtype != column.dtype:
        return [(ADD, table, size, width, address, 0)]
    # The columns of a file may begin at any byte.
    unit = next(unit for unit in UNITS if (address | width * size) % unit == 0)
    task = REPEAT if column.is_constant else COPY
    return [(task, table, unit, width * size // unit, address, 0)]


class DeviceGather:
    """Makes batches by torch's own indexing, without waiting for the GPU."""

    def __init__(self, tables: Mapping[str, Table], device: torch.device) -> None:
        self._tables, self._device = tables, device

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Return all columns, table by table."""
        made = {}
        ids = self.numbers(plan.ids)
        before = self.numbers(plan.ptrs[:2, :-1])
        for number, table in enumerate(self._tables.values()):
            owner, place = self._places(plan, number)
            if number == 0:
                made["batch"] = owner
            for name, column in table.columns.items():
                if is_pairs(name):
                    made[name] = column.values.index_select(1, place) + before[0][owner]
                elif name == BY_SOURCE and by_source:
                    made[name] = column.values.index_select(0, place) + before[1][owner]
                elif name not in HIDDEN:
                    rows = ids.index_select(0, owner) if column.is_constant else place
                    made[name] = column.values.index_select(0, rows).to(column.dtype)
        return made

    def numbers(self, numbers: Int[np.ndarray, "..."]) -> Int[Tensor, "..."]:
        """Send over what was computed on the host."""
        # So few numbers are staged by the driver at once, and nobody waits for the GPU.
        return torch.from_numpy(numbers).to(self._device, non_blocking=True)

    def _places(self, plan: Plan, table: int) -> tuple[Int[Tensor, " rows"], Int[Tensor, " rows"]]:
        """Graph of each row in the batch, and its row in the table."""
        ptr = plan.ptrs[table]
        counts, move = self.numbers(np.stack([np.diff(ptr), plan.starts[table] - ptr[:-1]]))
        # The size is known here; torch would have to ask the GPU for it.
        owner = torch.repeat_interleave(counts, output_size=int(ptr[-1]))
        place = torch.arange(owner.shape[0], device=self._device) + move.index_select(0, owner)
        return owner, place


Gather = HostGather | DeviceGather


def make_gather(tables: Mapping[str, Table], device: torch.device) -> Gather:
    """Choose the way for a device; both give the same bits."""
    if device.type == "cpu" and find_spec("numba"):
        return HostGather(tables)
    return DeviceGather(tables, device)

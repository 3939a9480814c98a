"""Batches on a GPU by Triton kernels: one small copy and one launch."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from graphmamba.data.gather import (
    MOST_VALUES,
    TABLE,
    WIDTH,
    Jobs,
    Plan,
    bounds_of,
    list_jobs,
    list_outs,
    make_plan,
    send,
)
from graphmamba.data.gather_triton_kernels import FIELDS, gather_kernel
from graphmamba.data.static_batch import BLOCK as STATIC_BLOCK
from graphmamba.data.static_batch import VALUES as STATIC_VALUES
from graphmamba.data.static_batch import (
    Begins,
    Place,
    place_columns,
    static_jobs,
    static_outs,
)
from graphmamba.data.static_batch_triton_kernels import place_kernel, static_gather_kernel
from graphmamba.data.static_size import StaticSize
from graphmamba.data.tables import Numbers, Table
from graphmamba.errors import UserError
from graphmamba.ops.triton_launch import power_of_two

BLOCK = 1024
"""Values that a program writes."""
ADDRESS, VALUES, FIRST_PROGRAM = 6, 7, 8
"""Numbers of a job that each batch has others of, behind those of `Jobs`; see `FIELDS`."""


class TritonGather:
    """Makes batches by a Triton kernel, without waiting for the GPU."""

    def __init__(self, tables: Mapping[str, Table], device: torch.device) -> None:
        # The addresses of the jobs hold only as long as the columns do.
        self._tables, self._device = tables, device
        self._bounds, self.outs = bounds_of(tables), list_outs(tables)
        self._jobs = list_jobs(tables, self.outs)

    def plan(self, ids: Numbers) -> Plan:
        """Look up the rows of graphs."""
        return make_plan(self._bounds, ids)

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Allocate all columns, then write them in one launch."""
        rows = plan.ptrs[:, -1].tolist()
        made: dict[str, Tensor] = {}
        addresses = []
        for each in self.outs if by_source else self.outs[:-1]:
            size = each.size(rows[each.table])
            out = made[each.name] = torch.empty(size, dtype=each.dtype, device=self._device)
            step = out.nbytes // each.lines
            addresses += [out.data_ptr() + line * step for line in range(each.lines)]
        sent = self._write(self._jobs[: len(addresses)], addresses, plan)
        graphs, tables = len(plan.ids), len(rows)
        ids, _, ptrs = sent[FIELDS.value * len(addresses) :].split(
            [graphs, tables * graphs, tables * (graphs + 1)]
        )
        return made | {"graph_key": ids, "ptr": ptrs[: graphs + 1]}

    def _write(self, jobs: Jobs, addresses: Sequence[int], plan: Plan) -> Int[Tensor, " numbers"]:
        """Start the kernel; returns what it reads, where the store is."""
        packed, programs = pack(jobs, addresses, plan)
        graphs = len(plan.ids)
        with self._on_device():
            sent = send(packed, self._device)
            if programs:
                gather_kernel[(programs,)](
                    *(sent, len(jobs), graphs, len(plan.ptrs), (graphs + 1).bit_length()),
                    JOBS=power_of_two(len(jobs)),
                    BLOCK=BLOCK,
                )
        return sent

    def _on_device(self) -> AbstractContextManager[object]:
        # Triton launches where torch stands, which need not be where the store is.
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()


def pack(
    jobs: Jobs, addresses: Sequence[int], plan: Plan
) -> tuple[Int[np.ndarray, " numbers"], int]:
    """Pack the arguments of the kernel into one tensor, and count its programs."""
    filled = np.empty((len(jobs), FIELDS.value), np.int64)
    filled[:, :ADDRESS], filled[:, ADDRESS] = jobs, addresses
    filled[:, VALUES] = plan.ptrs[jobs[:, TABLE], -1] * jobs[:, WIDTH]
    most = filled[:, VALUES].max()
    if most > MOST_VALUES:
        raise UserError(f"ids must leave each column at most {MOST_VALUES} values, got {most}")
    programs = -(-filled[:, VALUES] // BLOCK)
    filled[:, FIRST_PROGRAM] = programs.cumsum() - programs
    parts = (filled.ravel(), plan.ids, plan.starts.ravel(), plan.ptrs.ravel())
    return np.concatenate(parts), int(programs.sum())


class _Layout(NamedTuple):
    """How the columns of one size lie in the memory of a batch."""

    places: list[Place]
    bytes: int
    packed: Int[Tensor, " numbers"]
    """The jobs, where the store is, then the rows of each table."""
    jobs: int
    programs: int


class TritonStatic:
    """Makes the columns of static batches by Triton kernels.

    The first batch of a size copies its layout to the GPU and cannot be captured. All columns of a
    batch share one tensor.

    Args:
        tables: Tables of the store.
        begins: First edge of each node in its graph, for batches with edges by source.
        device: Where the store is.
    """

    def __init__(self, tables: Mapping[str, Table], begins: Begins, device: torch.device) -> None:
        # The addresses of the jobs hold only as long as the columns do.
        self._tables, self._begins, self._device = tables, begins, device
        self._outs = static_outs(tables, begins)
        self._jobs = static_jobs(tables, self._outs, begins)
        self._bounds = torch.from_numpy(bounds_of(tables)).to(device)
        self._layouts: dict[tuple[StaticSize, bool], _Layout] = {}

    def columns(
        self, ids: Int[Tensor, " slots"], size: StaticSize, by_source: bool
    ) -> dict[str, Tensor]:
        """Return all columns; see `StaticGather.batch`."""
        layout = self._layouts.get((size, by_source)) or self._lay_out(size, by_source)
        memory = torch.empty(layout.bytes, dtype=torch.uint8, device=self._device)
        tables, places = len(self._tables), size.graphs + 1
        counts = [places, places, tables * places, tables * (places + 1), 1]
        plan = torch.empty(sum(counts), dtype=torch.int64, device=self._device)
        with torch.cuda.device_of(memory):
            place_kernel[(tables,)](
                *(ids, self._bounds, layout.packed[-tables:], plan),
                *(self._bounds.shape[1] - 1, size.graphs, tables),
                PLACES=power_of_two(places),
            )
            static_gather_kernel[(layout.programs,)](
                *(layout.packed, plan, memory.data_ptr(), layout.jobs, size.graphs, tables),
                (size.graphs + 1).bit_length(),
                JOBS=power_of_two(layout.jobs),
                BLOCK=STATIC_BLOCK,
            )
        _, known, _, begins, real_graphs = plan.split(counts)
        begins = begins.view(tables, places + 1)
        return _views(layout, memory) | {
            "ptr": begins[0],
            "graph_key": known,
            "num_real_graphs": real_graphs[0],
            "num_real_nodes": begins[0, size.graphs],
            "num_real_edges": begins[1, size.graphs],
        }

    def _lay_out(self, size: StaticSize, by_source: bool) -> _Layout:
        capacity = size.rows(self._tables)
        rows = [capacity[kind] for kind in self._tables]
        outs = self._outs if by_source else self._outs[: -1 - len(self._begins)]
        jobs = self._jobs[: sum(out.lines for out in outs)]
        placed, places, end = place_columns(jobs, outs, rows)
        packed = np.concatenate([placed.ravel(), np.array(rows, np.int64)])
        sent = torch.from_numpy(packed).to(self._device)
        programs = int((-(-placed[:, STATIC_VALUES] // STATIC_BLOCK)).sum())
        layout = _Layout(places, end, sent, len(jobs), programs)
        return self._layouts.setdefault((size, by_source), layout)


def _views(layout: _Layout, memory: UInt8[Tensor, " bytes"]) -> dict[str, Tensor]:
    """Cut the columns out of the memory of a batch."""
    return {
        out.name: memory[start:end].view(out.dtype).view(shape)
        for out, start, end, shape in layout.places
    }

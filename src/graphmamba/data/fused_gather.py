"""Batches on a GPU by one copy of a few numbers and one launch."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import triton
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.fused_gather_kernels import FIELDS, gather_kernel
from graphmamba.data.gather_jobs import MOST_VALUES, TABLE, WIDTH, Jobs, list_jobs, list_outs
from graphmamba.data.plan import Plan, bounds_of, make_plan
from graphmamba.data.send import send
from graphmamba.data.tables import Numbers, Table
from graphmamba.errors import UserError

BLOCK = 1024
"""Values that a program writes."""
ADDRESS, VALUES, FIRST_PROGRAM = 6, 7, 8
"""Numbers of a job that each batch has others of, behind those of `Jobs`; see `FIELDS`."""


class FusedGather:
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
        """Start the kernel; returns what it was told, where the store is."""
        packed, programs = pack(jobs, addresses, plan)
        graphs = len(plan.ids)
        with self._on_device():
            sent = send(packed, self._device)
            if programs:
                gather_kernel[(programs,)](
                    *(sent, len(jobs), graphs, len(plan.ptrs), (graphs + 1).bit_length()),
                    JOBS=triton.next_power_of_2(len(jobs)),
                    BLOCK=BLOCK,
                )
        return sent

    def _on_device(self) -> AbstractContextManager[object]:
        # Triton launches where torch stands, which need not be where the store is.
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()


def pack(
    jobs: Jobs, addresses: Sequence[int], plan: Plan
) -> tuple[Int[np.ndarray, " numbers"], int]:
    """Lay all that the kernel is told end to end, and count the programs that it takes."""
    told = np.empty((len(jobs), FIELDS.value), np.int64)
    told[:, :ADDRESS], told[:, ADDRESS] = jobs, addresses
    told[:, VALUES] = plan.ptrs[jobs[:, TABLE], -1] * jobs[:, WIDTH]
    most = told[:, VALUES].max()
    if most > MOST_VALUES:
        raise UserError(f"ids must leave each column at most {MOST_VALUES} values, got {most}")
    programs = -(-told[:, VALUES] // BLOCK)
    told[:, FIRST_PROGRAM] = programs.cumsum() - programs
    parts = (told.ravel(), plan.ids, plan.starts.ravel(), plan.ptrs.ravel())
    return np.concatenate(parts), int(programs.sum())

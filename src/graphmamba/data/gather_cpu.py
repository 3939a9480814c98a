"""Batches on the CPU by one compiled function."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmamba.data.gather import Buffers, Plan, bounds_of, check_ids, list_jobs, list_outs
from graphmamba.data.gather_kernels import fill, look_up
from graphmamba.data.tables import Numbers, Table


class HostGather:
    """Makes batches by a function of Numba's, which leaves Python free meanwhile."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        # The addresses of the jobs hold only as long as the columns do.
        self._tables = tables
        self._bounds, self.outs = bounds_of(tables), list_outs(tables)
        self._jobs = list_jobs(tables, self.outs)
        # Each column has its own memory: what was enough for one batch mostly is for the next.
        self._buffers = [Buffers(out.dtype) for out in self.outs]

    def plan(self, ids: Numbers) -> Plan:
        """Look up the rows of graphs as `make_plan` does, in one call instead of seven."""
        tables, graphs = len(self._bounds), len(ids)
        plan = Plan(
            ids, np.empty((tables, graphs), np.int64), np.empty((tables, graphs + 1), np.int64)
        )
        if not look_up(self._bounds, *plan):
            check_ids(self._bounds, ids)
        return plan

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Allocate all columns, then write them in one call."""
        rows = plan.ptrs[:, -1].tolist()
        made = {"ptr": torch.from_numpy(plan.ptrs[0]), "graph_key": torch.from_numpy(plan.ids)}
        addresses = []
        chosen = self.outs if by_source else self.outs[:-1]
        for each, buffers in zip(chosen, self._buffers, strict=False):
            out = made[each.name] = buffers.take(each.size(rows[each.table]))
            address = out.data_ptr()
            addresses.append(address)
            if each.lines > 1:
                addresses.append(address + out.nbytes // each.lines)
        jobs = self._jobs[: len(addresses)]
        fill(jobs, np.array(addresses, np.int64), plan.ids, plan.starts, plan.ptrs)
        return made

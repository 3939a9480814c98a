"""Batches on the CPU by one compiled function."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmamba.data.gather import Plan, bounds_of, list_jobs, list_outs, make_plan
from graphmamba.data.gather_kernels import fill
from graphmamba.data.tables import Numbers, Table


class HostGather:
    """Makes batches by a function of Numba's, which leaves Python free meanwhile."""

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

"""Batches by torch's own indexing, on any device."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.gather_jobs import list_outs
from graphmamba.data.plan import Plan, bounds_of, make_plan
from graphmamba.data.send import send
from graphmamba.data.tables import BY_SOURCE, HIDDEN, Numbers, Table, is_pairs

Numbered = Int[Tensor, "..."]


class DeviceGather:
    """Makes batches without waiting for the device, and with one copy to it."""

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

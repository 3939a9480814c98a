"""The rows of chosen graphs, one graph after another: index arithmetic, on any device."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from graphmamba.data.gather_jobs import Out
from graphmamba.data.plan import Plan
from graphmamba.data.tables import Numbers, Table
from graphmamba.data.torch_gather import DeviceGather


@runtime_checkable
class Gather(Protocol):
    """Makes the columns of a batch where the store is."""

    outs: list[Out]
    """All columns that a batch may have."""

    def plan(self, ids: Numbers) -> Plan:
        """Look up the rows of graphs."""

    def columns(self, plan: Plan, by_source: bool) -> dict[str, Tensor]:
        """Return the columns of the graphs of a plan, `batch`, `ptr` and `graph_key` among them."""


def make_gather(tables: Mapping[str, Table], device: torch.device) -> Gather:
    """Choose the way for a device; all give the same bits."""
    if device.type == "cpu" and find_spec("numba"):
        from graphmamba.data.host_gather import HostGather

        return HostGather(tables)
    if device.type == "cuda" and find_spec("triton"):
        from graphmamba.data.fused_gather import FusedGather

        return FusedGather(tables, device)
    return DeviceGather(tables, device)

"""Chosen graphs of a store as one PyG batch."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.data.storage import GlobalStorage

from graphmamba.data.gather import Gather
from graphmamba.data.tables import Numbers


@cache
def _blank() -> tuple[type[Batch], dict[str, Any]]:
    """Class of a batch, and what each has besides its columns."""
    batch = Batch(_base_cls=Data)
    return type(batch), {name: each for name, each in vars(batch).items() if name != "_store"}


def make_batch(gather: Gather, ids: Numbers, by_source: bool = False) -> Batch:
    """Copy the rows of graphs, one graph after another, and move the numbers of their nodes.

    The batch can be taken apart again like one that PyG makes.
    """
    plan = gather.plan(ids)
    columns = gather.columns(plan, by_source)
    ptrs = [torch.from_numpy(ptr) for ptr in plan.ptrs]
    before: dict[int | None, Tensor | None] = {None: None, 0: torch.from_numpy(plan.ptrs[0, :-1])}
    if by_source:
        before[1] = torch.from_numpy(plan.ptrs[1, :-1])
    slices = {"graph_key": ptrs[2]}
    shifts: dict[str, Tensor | None] = {"graph_key": None}
    has_nodes = False
    for name, table, _, _, _, counts in gather.outs[1:]:
        if name in columns:
            slices[name], shifts[name] = ptrs[table], before[counts]
            has_nodes |= table == 0
    batch = bare_batch(columns, len(ids))
    vars(vars(batch)["_store"]).update(_slice_dict=slices, _inc_dict=shifts)
    if not has_nodes:
        batch.num_nodes = int(plan.ptrs[0, -1])
    return batch


def bare_batch(columns: Mapping[str, Tensor], num_graphs: int) -> Batch:
    """Put columns together; what it takes to take the batch apart is not there."""
    # PyG would look the class up again for each batch, and each column twice; both take longer than
    # to copy the rows.
    kind, rest = _blank()
    batch, store = object.__new__(kind), object.__new__(GlobalStorage)
    vars(store).update(_mapping=dict(columns), _parent=ref(batch), _num_graphs=num_graphs)
    vars(batch).update(rest, _store=store)
    return batch

"""Chosen graphs of a store as one PyG batch."""

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.data.gather import Gather, make_plan
from graphmamba.data.tables import BY_SOURCE, Numbers, Table, is_pairs


@cache
def _batch_class() -> type[Batch]:
    return type(Batch(_base_cls=Data))


def make_batch(
    tables: Mapping[str, Table], gather: Gather, ids: Numbers, by_source: bool = False
) -> Batch:
    """Copy the rows of graphs, one graph after another, and move the numbers of their nodes.

    The batch can be taken apart again like one that PyG makes.
    """
    plan = make_plan(tables, ids)
    columns = gather.columns(plan, by_source)
    columns["ptr"], columns["graph_key"] = gather.numbers(plan.ptrs[0]), gather.numbers(ids)
    ptrs = torch.from_numpy(plan.ptrs).unbind()
    before = ptrs[0][:-1]
    slices, shifts = {"graph_key": ptrs[2]}, {"graph_key": None, BY_SOURCE: ptrs[1][:-1]}
    for table, ptr in zip(tables.values(), ptrs, strict=True):
        for name in table.columns:
            if name in columns:
                slices[name] = ptr
                shifts.setdefault(name, before if is_pairs(name) else None)
    batch = bare_batch(columns, len(ids))
    vars(vars(batch)["_store"]).update(_slice_dict=slices, _inc_dict=shifts)
    if not tables["nodes"].columns:
        batch.num_nodes = int(plan.ptrs[0, -1])
    return batch


def bare_batch(columns: Mapping[str, Tensor], num_graphs: int) -> Batch:
    """Put columns together; what it takes to take the batch apart is not there."""
    # PyG would look the class up anew for each batch, and each column twice; both take longer than
    # to copy the rows.
    batch = object.__new__(_batch_class())
    Data.__init__(batch)
    store = vars(batch)["_store"]
    store._mapping.update(columns)
    vars(store).update(_num_graphs=num_graphs)
    return batch

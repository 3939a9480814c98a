"""The columns of a store as tensors of one file, by name, and back."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphmamba.data.store import GraphStore
from graphmamba.data.store_checks import check_ptr, check_split
from graphmamba.data.tables import HIDDEN, NARROW, Column, Table, is_pairs
from graphmamba.errors import UserError

KEY_PARTS = 4


def tensors_of(store: GraphStore) -> dict[str, Tensor]:
    """Name columns `TABLE/NAME/DTYPE/KIND`, and the boundaries of each table `TABLE/ptr`."""
    tensors = {} if store.split is None else {"split": store.split}
    for kind, table in store.tables.items():
        tensors[f"{kind}/ptr"] = torch.from_numpy(table.ptr)
        for name, column in table.columns.items():
            dtype = str(column.dtype).removeprefix("torch.")
            rows = "constant" if column.is_constant else "rows"
            tensors[f"{kind}/{name}/{dtype}/{rows}"] = column.values.cpu()
    return _apart(tensors)


def store_of(tensors: Mapping[str, Tensor], source: str) -> GraphStore:
    """Put the tables together; their boundaries are checked, since copying relies on them."""
    graphs = len(tensors["nodes/ptr"]) - 1
    # Numbers of tables matter: nodes, edges, graphs, then pairs.
    kinds = [name.removesuffix("/ptr") for name in tensors if name.endswith("/ptr")]
    first = ["nodes", "edges", "graphs"]
    tables: dict[str, Table] = {}
    for kind in [*first, *sorted(set(kinds) - set(first))]:
        ptr = tensors[f"{kind}/ptr"]
        check_ptr(f"{kind}/ptr", ptr, graphs)
        tables[kind] = Table(np.ascontiguousarray(ptr.numpy()), {})
    for key, values in sorted(tensors.items()):
        parts = key.split("/")
        if len(parts) == KEY_PARTS:
            kind, name, dtype, rows = parts
            column = Column(values, _dtype_named(dtype), rows == "constant")
            _check_stored(key, name, column, graphs, int(tables[kind].ptr[-1]))
            tables[kind].columns[name] = column
    check_split(tensors.get("split"), graphs)
    if not {"edge_index", "source_order"} <= tables["edges"].columns.keys():
        raise UserError("edges must have edge_index and source_order")
    return GraphStore.from_tables(tables, tensors.get("split"), source)


def _dtype_named(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UserError(f"a column must hold a type of torch, got '{name}'")
    return found


def _check_stored(key: str, name: str, column: Column, graphs: int, rows: int) -> None:
    """Refuse what the kernels, which trust types and rows, could not copy."""
    values, needed = column.values, graphs if column.is_constant else rows
    is_number = is_pairs(name) or name in HIDDEN
    kinds = (*NARROW, torch.int64) if column.dtype == torch.int64 else (column.dtype,)
    if values.dtype not in kinds or (is_number and column.dtype != torch.int64):
        raise UserError(f"{key} must hold {column.dtype}, got {values.dtype}")
    shape = (2, needed) if is_pairs(name) else (needed, *values.shape[1:])
    if tuple(values.shape) != shape or (is_number and column.is_constant):
        raise UserError(f"{key} must have shape {list(shape)}, got {list(values.shape)}")


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give each tensor memory of its own, as the format asks for; most have it already."""
    apart, seen = {}, set()
    for name, values in tensors.items():
        memory = values.untyped_storage()
        is_alone = memory.nbytes() == values.nbytes and memory.data_ptr() not in seen
        seen.add(memory.data_ptr())
        apart[name] = values.contiguous() if is_alone else values.clone().contiguous()
    return apart

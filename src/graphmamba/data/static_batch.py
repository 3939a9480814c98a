"""Batches of fixed size for CUDA graphs: padded by a padding graph (`StaticGather`)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch_geometric.data import Batch

from graphmamba.data.batch import Blocks, do_fit
from graphmamba.data.edges import edge_begins
from graphmamba.data.gather import ADD, MOST_VALUES, Out, list_jobs, list_outs
from graphmamba.data.static_size import StaticSize
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import BY_SOURCE, HIDDEN, LABELS, Column, Table, is_pairs
from graphmamba.errors import UserError

COPY, REPEAT, PAIRS, ORDER, BEGIN, OWNER = range(6)
"""Tasks: copy rows, repeat the only row of a graph, shift indices of nodes, or of edges, shift the
first edge of each node, or write the index of the graph of each row."""
ALIGNED = 256
"""Bytes that a column begins at a multiple of."""
BLOCK = 512
"""Values that a program writes."""

Begins = Mapping[str, Int[Tensor, " nodes"]]
"""First edge of each node in its graph, by target and by source, under the names of columns."""
StaticJobs = Int[np.ndarray, "jobs 13"]
"""For each: task, table, bytes of a value as it is kept, values of a row, address of the column,
table whose rows before a graph are added (counted from 1; 0 adds nothing), bytes of a value as it
is written, whether padding graphs are filled, with what, whether the column has rows, where it is
written, how many values, and the first program that works on it."""
VALUE_BYTES, WRITTEN_AT, VALUES, FIRST_PROGRAM = 6, 10, 11, 12
"""Columns of it that are read or entered when the size of a batch is known: bytes of a value as it
is written, and the last three."""


class Place(NamedTuple):
    """Position of a column in the memory of a batch."""

    out: Out
    start: int
    end: int
    """Bytes."""
    shape: tuple[int, ...]


def static_outs(tables: Mapping[str, Table], begins: Begins) -> list[Out]:
    """Columns of a batch; the last are those that go with `source_order`, which precedes them."""
    found = [Out(name, 0, 1, (), torch.int32) for name in begins]
    return [*list_outs(tables), *found]


def static_jobs(tables: Mapping[str, Table], outs: Sequence[Out], begins: Begins) -> StaticJobs:
    """Say how each column is made; where it goes depends on the size of the batch."""
    columns = {name: column for table in tables.values() for name, column in table.columns.items()}
    jobs: list[tuple[int, ...]] = []
    for out in outs:
        if out.name == "batch":
            jobs.append((OWNER, 0, 8, 1, 0, 0, 8, 0, 0, 0))
        elif out.name in begins:
            first = begins[out.name]
            jobs.append((BEGIN, 0, 4, 1, first.data_ptr(), 2, 4, 0, 0, int(first.numel() > 0)))
        else:
            jobs += _jobs(out, columns[out.name])
    return np.pad(np.array(jobs, np.int64), ((0, 0), (0, 3)))


def _jobs(out: Out, column: Column) -> list[tuple[int, ...]]:
    is_label, has_rows = out.name in LABELS, int(column.values.numel() > 0)
    if is_label:
        # Copied value by value, so that each can be another.
        task = REPEAT if column.is_constant else COPY
        size, width = column.values.element_size(), math.prod(out.shape)
        address, bytes_ = column.values.data_ptr(), column.dtype.itemsize
        kept = (task, out.table, size, width, address, 0)
        return [(*kept, bytes_, 1, _missing(column.dtype), has_rows)]
    plain = list_jobs({"": Table(np.zeros(1, np.int64), {out.name: column})}, [out])
    found: list[tuple[int, ...]] = []
    for task, table, size, width, address, shift in plain.tolist():
        moved = PAIRS if out.counts == 0 else ORDER if out.name == BY_SOURCE else COPY
        is_added = task == ADD
        numbers = (moved if is_added else task, table, size, width, address, shift)
        found.append((*numbers, 8 if is_added else size, 0, 0, has_rows))
    return found


def _missing(dtype: torch.dtype) -> int:
    """Bits of the value for a missing label."""
    if not dtype.is_floating_point:
        return -1
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return int(torch.tensor(float("nan"), dtype=dtype).view(words[dtype.itemsize]))


def place_columns(
    jobs: StaticJobs, outs: Sequence[Out], rows: Sequence[int]
) -> tuple[StaticJobs, list[Place], int]:
    """Enter where columns of these rows go, one behind the other; returns also how many bytes."""
    placed, places, end, job = jobs.copy(), list[Place](), 0, 0
    for out in outs:
        shape = out.size(rows[out.table] + int(jobs[job, 0] == BEGIN))
        size = math.prod(shape) * out.dtype.itemsize
        places.append(Place(out, end, end + size, shape))
        for line in range(out.lines):
            placed[job, WRITTEN_AT] = end + line * (size // out.lines)
            placed[job, VALUES] = size // out.lines // placed[job, VALUE_BYTES]
            job += 1
        end += -(-size // ALIGNED) * ALIGNED
    most = placed[:, VALUES].max()
    if most > MOST_VALUES:
        raise UserError(f"size must leave each column at most {MOST_VALUES} values, got {most}")
    programs = -(-placed[:, VALUES] // BLOCK)
    placed[:, FIRST_PROGRAM] = programs.cumsum() - programs
    return placed, places, end


if TYPE_CHECKING:
    from graphmamba.data.gather_triton import TritonStatic


@dataclass(frozen=True)
class _Rows:
    """Rows of one table in a batch, those of the padding graph last."""

    begins: Int[Tensor, " places"]
    """First row of each graph; that of the padding graph is the number of real rows."""
    owner: Int[Tensor, " rows"]
    """Graph of each row."""
    place: Int[Tensor, " rows"]
    """Row in the table; rows of the padding graph are copies of the first row."""
    is_padding: Bool[Tensor, " rows"]


class StaticGather:
    """Makes batches of fixed shapes by operations that a CUDA graph can capture.

    Nothing waits for the GPU and no shape depends on the data. The padding graph comes last. Its
    edges, and other pairs, are self-loops spread evenly over its nodes. It has no labels, nor have
    empty slots, so that losses and metrics ignore them. A batch also has the scalar tensors
    `num_real_graphs`, `num_real_nodes` and `num_real_edges`, and the `dense_blocks` of its size; it
    cannot be separated into graphs. On a GPU it takes two launches, and its columns share one
    tensor.

    Args:
        store: The graphs, on the device of the batches.
    """

    def __init__(self, store: GraphStore) -> None:
        if not len(store):
            raise UserError("store must hold at least one graph, got 0")
        for kind, table in store.tables.items():
            for name in table.columns.keys() & LABELS:
                dtype = table.columns[name].dtype
                if dtype == torch.bool or not dtype.is_signed:
                    raise UserError(
                        f"{kind}.{name} must have a signed type, or nothing could stand for "
                        f"'unlabelled', got {dtype}"
                    )
        self._tables, self._device = store.tables, store.device
        self._ptrs = {
            kind: torch.from_numpy(table.ptr).to(store.device)
            for kind, table in store.tables.items()
        }

    def __getstate__(self) -> dict[str, object]:
        # The kernels find columns by their addresses, and those of a copy are others.
        return {name: each for name, each in vars(self).items() if name != "_triton"}

    def batch(self, ids: Int[Tensor, " slots"], size: StaticSize, by_source: bool = False) -> Batch:
        """Return graphs as one PyG batch of `size.graphs + 1` graphs.

        Args:
            ids: Indices of the graphs, on the device; -1 for empty slots, which come last.
            size: Size from `StaticSizes.choose`. One that is too small is rejected on the CPU only,
                since the check would wait for a GPU.
            by_source: Whether to add `source_order`, the edges in the order of their sources, and
                where those of each node begin: `source_ptr` and `target_ptr`.
        """
        if ids.shape != (size.graphs,) or ids.device != self._device:
            raise UserError(
                f"ids must have shape [{size.graphs}] and be on {self._device}, "
                f"got {list(ids.shape)} on {ids.device}"
            )
        if self._device.type == "cuda" and find_spec("triton"):
            made = self._triton.columns(ids.long(), size, by_source)
        else:
            made = self._columns(ids.long(), size, by_source)
        batch = Batch(**made)
        if size.blocks:
            batch.dense_blocks = size.blocks
        return batch

    @cached_property
    def _triton(self) -> "TritonStatic":
        from graphmamba.data.gather_triton import TritonStatic

        return TritonStatic(self._tables, self._begins, self._device)

    @cached_property
    def _begins(self) -> dict[str, Int[Tensor, " nodes"]]:
        return edge_begins(self._tables, self._device)

    def _columns(
        self, ids: Int[Tensor, " slots"], size: StaticSize, by_source: bool
    ) -> dict[str, Tensor]:
        """Make all columns by torch indexing: the reference of the kernels."""
        slots = torch.nn.functional.pad(ids, (0, 1), value=-1)
        capacity = size.rows(self._tables)
        rows = {
            kind: _rows_of_graphs(slots) if kind == "graphs" else self._rows(kind, slots, number)
            for kind, number in capacity.items()
        }
        self._check(rows, capacity, size.blocks)
        nodes, edges = rows["nodes"], rows["edges"]
        made = {
            "batch": nodes.owner,
            "ptr": torch.nn.functional.pad(nodes.begins, (0, 1), value=size.nodes),
            "graph_key": slots.clamp_min(0),
            "num_real_graphs": (ids >= 0).sum(),
            "num_real_nodes": nodes.begins[-1],
            "num_real_edges": edges.begins[-1],
        }
        for kind, table in self._tables.items():
            for name, column in table.columns.items():
                if is_pairs(name):
                    made[name] = _pairs(column, rows[kind], nodes)
                elif name not in HIDDEN:
                    made[name] = _values(name, column, rows[kind], slots)
        if by_source:
            column = self._tables["edges"].columns[BY_SOURCE]
            own = _select(column, 0, edges.place) + edges.begins[edges.owner]
            made[BY_SOURCE] = torch.where(edges.is_padding, _counter(edges.owner), own)
            for name, begins in self._begins.items():
                made[name] = _pointers(begins, nodes, edges)
        return made

    def _rows(self, kind: str, slots: Int[Tensor, " places"], rows: int) -> _Rows:
        ptr, padding = self._ptrs[kind], slots.shape[0] - 1
        known = slots.clamp_min(0)
        starts = ptr[known]
        counts = (ptr[known + 1] - starts).masked_fill(slots < 0, 0)
        ends = counts.cumsum(0)
        begins = ends - counts
        row = torch.arange(rows, device=slots.device)
        owner = torch.searchsorted(ends[:-1], row, right=True)
        is_padding = owner == padding
        place = (row + (starts - begins)[owner]).masked_fill(is_padding, 0)
        return _Rows(begins, owner, place, is_padding)

    def _check(
        self, rows: Mapping[str, _Rows], capacity: Mapping[str, int], blocks: Blocks
    ) -> None:
        if self._device.type != "cpu":
            return
        for kind, made in rows.items():
            needed = int(made.begins[-1]) + (kind == "nodes")
            if needed > capacity[kind]:
                raise UserError(
                    f"size.{kind} must be at least {needed} for these graphs, got {capacity[kind]}"
                )
        nodes = rows["nodes"].begins.diff().numpy()
        if not do_fit(blocks, nodes):
            raise UserError(
                f"size.blocks must have room for graphs of {nodes.tolist()} nodes, got {blocks}"
            )


def _rows_of_graphs(slots: Int[Tensor, " places"]) -> _Rows:
    """One row per slot, including empty ones."""
    return _Rows(_counter(slots), _counter(slots), slots.clamp_min(0), slots < 0)


def _pairs(column: Column, rows: _Rows, nodes: _Rows) -> Int[Tensor, "2 rows"]:
    own = _select(column, 1, rows.place) + nodes.begins[rows.owner]
    # A node of the padding graph's for each of its pairs, ascending: none becomes a hub.
    number = _counter(rows.owner) - rows.begins[-1]
    real_nodes, rest = nodes.begins[-1], rows.owner.shape[0] - rows.begins[-1]
    padding_nodes = nodes.owner.shape[0] - real_nodes
    spread = real_nodes + number * padding_nodes // rest.clamp_min(1)
    return torch.where(rows.is_padding, spread, own)


def _pointers(
    begins: Int[Tensor, " all_nodes"], nodes: _Rows, edges: _Rows
) -> Int[Tensor, " boundaries"]:
    """First edge of each node, and the number of edges."""
    own = _select(Column(begins, begins.dtype), 0, nodes.place) + edges.begins[nodes.owner]
    real_nodes, real_edges = nodes.begins[-1], edges.begins[-1]
    all_nodes, all_edges = nodes.owner.shape[0], edges.owner.shape[0]
    # The padding's edges are spread evenly, as `_pairs` has it: this is how many go to nodes
    # before.
    number, paddings = _counter(nodes.owner) - real_nodes, all_nodes - real_nodes
    below = (number * (all_edges - real_edges) + paddings - 1) // paddings.clamp_min(1)
    found = torch.where(nodes.is_padding, real_edges + below, own).int()
    return torch.nn.functional.pad(found, (0, 1), value=all_edges)


def _values(name: str, column: Column, rows: _Rows, slots: Int[Tensor, " places"]) -> Tensor:
    place = slots.clamp_min(0)[rows.owner] if column.is_constant else rows.place
    values = _select(column, 0, place).to(column.dtype)
    if name not in LABELS:
        return values
    is_padding = rows.is_padding.view(-1, *[1] * (values.dim() - 1))
    return values.masked_fill(is_padding, float("nan") if column.dtype.is_floating_point else -1)


def _select(column: Column, axis: int, place: Int[Tensor, " rows"]) -> Tensor:
    if column.values.shape[axis]:
        return column.values.index_select(axis, place)
    # A set without a single row of this kind has none to copy.
    shape = list(column.values.shape)
    shape[axis] = place.shape[0]
    return column.values.new_zeros(shape)


def _counter(rows: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    return torch.arange(rows.shape[0], device=rows.device)

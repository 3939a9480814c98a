"""Static batches on a GPU by two launches, which a CUDA graph can hold."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
import triton
from jaxtyping import Int, UInt8
from torch import Tensor

from graphmamba.data.fused_static_kernels import place_kernel, static_gather_kernel
from graphmamba.data.plan import bounds_of
from graphmamba.data.static_jobs import (
    BLOCK,
    VALUES,
    Begins,
    Place,
    place_columns,
    static_jobs,
    static_outs,
)
from graphmamba.data.static_size import StaticSize
from graphmamba.data.tables import Table


class _Layout(NamedTuple):
    """How the columns of one size lie in the memory of a batch."""

    places: list[Place]
    bytes: int
    told: Int[Tensor, " numbers"]
    """The jobs, where the store is, then the rows of each table."""
    jobs: int
    programs: int


class FusedStatic:
    """Makes the columns of static batches by Triton kernels.

    The first batch of a size has a few numbers sent to the GPU, which stay there; it cannot be
    captured. All columns of a batch share one piece of memory.

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
                *(ids, self._bounds, layout.told[-tables:], plan),
                *(self._bounds.shape[1] - 1, size.graphs, tables),
                PLACES=triton.next_power_of_2(places),
            )
            static_gather_kernel[(layout.programs,)](
                *(layout.told, plan, memory.data_ptr(), layout.jobs, size.graphs, tables),
                (size.graphs + 1).bit_length(),
                JOBS=triton.next_power_of_2(layout.jobs),
                BLOCK=BLOCK,
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
        told, places, end = place_columns(jobs, outs, rows)
        packed = np.concatenate([told.ravel(), np.array(rows, np.int64)])
        sent = torch.from_numpy(packed).to(self._device)
        programs = int((-(-told[:, VALUES] // BLOCK)).sum())
        layout = _Layout(places, end, sent, len(jobs), programs)
        return self._layouts.setdefault((size, by_source), layout)


def _views(layout: _Layout, memory: UInt8[Tensor, " bytes"]) -> dict[str, Tensor]:
    """Cut the columns out of the memory of a batch."""
    return {
        out.name: memory[start:end].view(out.dtype).view(shape)
        for out, start, end, shape in layout.places
    }

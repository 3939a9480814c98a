"""Makes the measurements of the efficiency study, one cell at a time."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from graphmamba.study.cost import (
    Cost,
    Shelf,
    Subject,
    largest_batch,
    measure_cost,
    original_flops_of,
)
from graphmamba.study.efficiency_findings import BatchRow, FractionRow, MixerRow, Row
from graphmamba.study.efficiency_plan import OURS, Cell, Plan, experiment_of
from graphmamba.study.graphs import StudyGraphs, study_graphs
from graphmamba.study.memory import released_bytes


@dataclass(frozen=True)
class Bench:
    """Where and on what is measured; graphs are chosen once for all cells that share them."""

    plan: Plan
    device: torch.device
    memory_cap: int
    root: Path | None = None
    seed: int = 0
    _graphs: dict[tuple[str, int], StudyGraphs] = field(
        default_factory=dict, compare=False, repr=False
    )
    _shelves: dict[tuple[str, int, float], Shelf] = field(
        default_factory=dict, compare=False, repr=False
    )

    def measure(self, cell: Cell) -> Row:
        """Make one measurement; running out of memory is an outcome as well.

        Raises:
            HeldMemoryError: Memory of earlier measurements is not given back.
        """
        source, held = self.source(cell), released_bytes(self.device)
        match cell.figure:
            case "fractions":
                return FractionRow(cell.model, cell.fraction, source, self._cost(cell), held)
            case "mixers":
                names = cell.benchmark, cell.model, cell.sizing
                return MixerRow(*names, source, self._cost(cell), held)
            case "batches":
                found = largest_batch(self._subject(cell), self.plan.largest, self.memory_cap)
                return BatchRow(cell.model, source, found, held)

    def recount(self, row: FractionRow | MixerRow) -> FractionRow | MixerRow:
        """Find the operations of the original code anew, by formula; nothing is measured."""
        subject, size = self._subject(row.cell), self._batch_size(row.cell)
        found = original_flops_of(subject, size, self.plan.batches)
        return replace(row, cost=replace(row.cost, original_flops=found))

    def source(self, cell: Cell) -> str:
        """Say where the graphs of a cell come from."""
        return self._whole(cell).source

    def _cost(self, cell: Cell) -> Cost:
        plan, subject = self.plan, self._subject(cell)
        return measure_cost(
            subject, self._batch_size(cell), plan.batches, self.memory_cap, plan.repeats
        )

    def _subject(self, cell: Cell) -> Subject:
        experiment = experiment_of(cell.benchmark, cell.model, cell.sizing)
        return Subject(experiment, self._shelf(cell), self.device, self.seed)

    def _shelf(self, cell: Cell) -> Shelf:
        key = cell.benchmark, self._batch_size(cell), cell.fraction
        if key not in self._shelves:
            chosen = self._whole(cell).subsampled(cell.fraction, self.seed)
            self._shelves[key] = Shelf(chosen.graphs, self.seed)
        return self._shelves[key]

    def _whole(self, cell: Cell) -> StudyGraphs:
        size = self._batch_size(cell)
        key = cell.benchmark, size
        if key not in self._graphs:
            self._graphs[key] = study_graphs(
                cell.benchmark, size * self.plan.batches, self.root, self.seed, self.plan.scale
            )
        return self._graphs[key]

    def _batch_size(self, cell: Cell) -> int:
        """That of the plan in the first figure, that of Graph-Mamba's recipe in the second."""
        if cell.figure != "mixers":
            return self.plan.batch_size
        size = experiment_of(cell.benchmark, OURS, "published").recipe.batch_size
        return min(size, self.plan.largest_batch_size or size)

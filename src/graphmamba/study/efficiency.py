"""`graphmamba study efficiency`: the paper's two figures of operations, memory and time."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar, get_args

import torch

from graphmamba.checks import check_choice
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.study.cost import (
    Cost,
    LargestBatch,
    Shelf,
    Subject,
    largest_batch,
    measure_cost,
)
from graphmamba.study.efficiency_plan import (
    FIRST_FIGURE,
    FIRST_SET,
    FULL,
    OURS,
    QUICK,
    Plan,
    Sizing,
    experiment_of,
)
from graphmamba.study.graphs import study_graphs
from graphmamba.study.memory import capped, parse_bytes

Part = Literal["all", "malnet", "mixers"]
Tell = Callable[[str], object]


@dataclass(frozen=True)
class FractionRow:
    """One point of the first figure."""

    model: str
    fraction: float
    source: str
    cost: Cost


@dataclass(frozen=True)
class BatchRow:
    """The largest batch of whole graphs."""

    model: str
    source: str
    largest: LargestBatch


@dataclass(frozen=True)
class MixerRow:
    """One point of the second figure."""

    benchmark: str
    model: str
    sizing: Sizing
    source: str
    cost: Cost


AnyRow = TypeVar("AnyRow", FractionRow, BatchRow, MixerRow)


@dataclass(frozen=True)
class Findings:
    """All that was measured."""

    plan: Plan
    memory_cap: int
    environment: dict[str, object]
    fractions: tuple[FractionRow, ...] = ()
    batches: tuple[BatchRow, ...] = ()
    mixers: tuple[MixerRow, ...] = ()


@dataclass(frozen=True)
class Bench:
    """Where and on what is measured."""

    plan: Plan
    device: torch.device
    memory_cap: int
    root: Path | None = None
    seed: int = 0

    def fractions(self) -> Iterator[FractionRow]:
        """Measure MalNet-Tiny graphs with a share of their nodes, smallest share first."""
        count = self.plan.batch_size * self.plan.batches
        whole = study_graphs(FIRST_SET, count, self.root, self.seed, self.plan.scale)
        for fraction in self.plan.fractions:
            chosen = whole.subsampled(fraction, self.seed)
            shelf = Shelf(chosen.graphs, self.seed)
            for model in FIRST_FIGURE:
                cost = self._cost(FIRST_SET, model, "published", shelf, self.plan.batch_size)
                yield FractionRow(model, fraction, chosen.source, cost)

    def batches(self) -> Iterator[BatchRow]:
        """Look for the largest batch of whole graphs."""
        count = self.plan.batch_size * self.plan.batches
        whole = study_graphs(FIRST_SET, count, self.root, self.seed, self.plan.scale)
        shelf = Shelf(whole.graphs, self.seed)
        for model in FIRST_FIGURE:
            subject = self._subject(FIRST_SET, model, "published", shelf)
            found = largest_batch(subject, self.plan.largest, self.memory_cap)
            yield BatchRow(model, whole.source, found)

    def mixers(self, benchmark: str) -> Iterator[MixerRow]:
        """Measure all models on batches of one set, as published and at equal size."""
        recipe = experiment_of(benchmark, OURS, "published").recipe
        size = min(recipe.batch_size, self.plan.largest_batch_size or recipe.batch_size)
        graphs = study_graphs(
            benchmark, size * self.plan.batches, self.root, self.seed, self.plan.scale
        )
        shelf = Shelf(graphs.graphs, self.seed)
        for sizing in get_args(Sizing):
            for model in self.plan.models:
                cost = self._cost(benchmark, model, sizing, shelf, size)
                yield MixerRow(benchmark, model, sizing, graphs.source, cost)

    def _subject(self, benchmark: str, model: str, sizing: Sizing, shelf: Shelf) -> Subject:
        return Subject(experiment_of(benchmark, model, sizing), shelf, self.device, self.seed)

    def _cost(
        self, benchmark: str, model: str, sizing: Sizing, shelf: Shelf, batch_size: int
    ) -> Cost:
        subject = self._subject(benchmark, model, sizing, shelf)
        return measure_cost(
            subject, batch_size, self.plan.batches, self.memory_cap, self.plan.repeats
        )


def efficiency(
    folder: Path = Path("efficiency"),
    device: str = "auto",
    memory_cap: str = "24GB",
    quick: bool = False,
    part: Part = "all",
    root: Path | None = None,
    seed: int = 0,
    commit: str | None = None,
) -> None:
    """Measure operations, memory and time of Graph-Mamba and its rivals, and draw both figures.

    Args:
        folder: Where the CSV, JSON, PNG and SVG files go.
        device: auto, cpu or cuda.
        memory_cap: What a training step may take, such as 24GB; beyond it a cell says OOM.
        quick: Small generated graphs and few of them.
        part: malnet is the first figure, mixers the second.
        root: Where data sets are kept; $GRAPHMAMBA_ROOT or ~/.cache/graphmamba by default.
        seed: Of the choice of graphs, the nodes kept and the weights.
        commit: Names the commit where the copy has no history.
    """
    from rich.console import Console

    from graphmamba.study.efficiency_report import print_findings, write_findings

    check_choice("part", part, get_args(Part))
    if folder.exists() and not folder.is_dir():
        raise UserError(f"folder must be a folder, got the file '{folder}'")
    where = resolve_device(device)
    cap = _affordable(parse_bytes("memory_cap", memory_cap), where)
    bench = Bench(QUICK if quick else FULL, where, cap, root, seed)
    findings = Findings(bench.plan, cap, describe(where, commit))
    with Console(stderr=True).status("measuring") as status:
        for found in run(bench, part, findings, status.update):
            # whatever ends the study later, what there is stays
            write_findings(found, folder)
            findings = found
    print_findings(findings, folder, Console())


def run(bench: Bench, part: Part, begun: Findings, tell: Tell) -> Iterator[Findings]:
    """Measure all rows, telling each; yields what there is after each group of rows."""
    with capped(bench.device, bench.memory_cap):
        if part in ("all", "malnet"):
            begun = replace(begun, fractions=tuple(_told(bench.fractions(), tell)))
            yield begun
            begun = replace(begun, batches=tuple(_told(bench.batches(), tell)))
            yield begun
        if part in ("all", "mixers"):
            for benchmark in bench.plan.sets:
                rows = tuple(_told(bench.mixers(benchmark), tell))
                begun = replace(begun, mixers=(*begun.mixers, *rows))
                yield begun


def _told(rows: Iterator[AnyRow], tell: Tell) -> Iterator[AnyRow]:
    for row in rows:
        tell(f"measured {row.model} {getattr(row, 'benchmark', FIRST_SET)}")
        yield row


def _affordable(cap: int, device: torch.device) -> int:
    """Keep a study on a CPU within half of the machine's memory; a GPU refuses by itself."""
    if device.type == "cuda":
        return cap
    return min(cap, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)

"""`graphmamba study efficiency`: the paper's two figures of operations, memory and time."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from graphmamba.bench.tables import page
from graphmamba.checks import check_choice, check_least
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.study.efficiency_bench import Bench
from graphmamba.study.efficiency_findings import BatchRow, Findings, Row, read_findings
from graphmamba.study.efficiency_plan import (
    FULL,
    QUICK,
    Cell,
    Part,
    cells_by_worth,
    experiment_of,
    is_the_same_work,
)
from graphmamba.study.memory import capped, parse_bytes, settled
from graphmamba.train.engine import rounded_products
from graphmamba.train.options import RunOptions
from graphmamba.train.stops import Stops

Tell = Callable[[str], object]


def efficiency(  # noqa: PLR0913
    folder: Path = Path("efficiency"),
    device: str = "auto",
    memory_cap: str = "24GB",
    quick: bool = False,
    part: Part = "all",
    root: Path | None = None,
    seed: int = 0,
    commit: str | None = None,
    *,
    max_time: float = math.inf,
) -> None:
    """Measure operations, memory and time of Graph-Mamba and its rivals, and draw both figures.

    A study that was stopped or cut off goes on when the same command is given again.

    Args:
        folder: Where the CSV, JSON, PNG and SVG files go; rows that it holds stay.
        device: auto, cpu or cuda.
        memory_cap: What a training step may take, such as 24GB; beyond it a cell says OOM.
        quick: Small generated graphs and few of them.
        part: malnet is the first figure, mixers the second.
        root: Where data sets are kept; $GRAPHMAMBA_ROOT or ~/.cache/graphmamba by default.
        seed: Of the choice of graphs, the nodes kept and the weights.
        commit: Names the commit where the copy has no history.
        max_time: Seconds after which no further cell is begun; the most telling ones come first.
    """
    from rich.console import Console

    from graphmamba.study.efficiency_report import print_findings, write_findings, write_rows

    check_choice("part", part, get_args(Part))
    check_least("max_time", max_time, 0)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"folder must be a folder, got the file '{folder}'")
    where = resolve_device(device)
    cap = _affordable(parse_bytes("memory_cap", memory_cap), where)
    bench = Bench(QUICK if quick else FULL, where, cap, root, seed)
    begun = Findings(bench.plan, cap, describe(where, commit), seed=seed)
    findings = recounted(bench, read_findings(folder, begun))
    with Stops(max_time, math.inf) as stops, Console(stderr=True).status("measuring") as status:
        for found in run(bench, part, findings, status.update, stops):
            # whatever ends the study later, what there is stays
            write_rows(found, folder)
            findings = found
    write_findings(findings, folder)
    print_findings(findings, folder, page(), missing_in(findings, part))


def missing_in(findings: Findings, part: Part) -> list[Cell]:
    """List what was not measured yet, the most telling first."""
    return [cell for cell in cells_by_worth(findings.plan, part) if cell not in findings.rows]


def run(
    bench: Bench, part: Part, begun: Findings, tell: Tell, stops: Stops | None = None
) -> Iterator[Findings]:
    """Measure all rows that are missing, telling each; yields what there is after each of them.

    Args:
        bench: Where and on what is measured.
        part: Which figures.
        begun: What there is already.
        tell: Gets a line for each row.
        stops: Says when to begin no further row; None goes on to the end.
    """
    with (
        settled(),
        # as training does unless it is told not to
        rounded_products(bench.device, RunOptions().tf32),
        capped(bench.device, bench.memory_cap),
    ):
        for cell in missing_in(begun, part):
            if stops is not None and (stops.is_over or stops.is_signalled):
                return
            _check_source(bench.source(cell), cell, begun)
            begun = begun.with_row(_measured_before(cell, begun) or bench.measure(cell))
            tell(f"measured {cell}")
            yield begun


def recounted(bench: Bench, found: Findings) -> Findings:
    """Fill in what formulas give and rows that were kept earlier lack."""
    for cell, row in found.rows.items():
        if not isinstance(row, BatchRow) and row.cost.original_flops is None:
            _check_source(bench.source(cell), cell, found)
            found = found.with_row(bench.recount(row))
    return found


def _measured_before(cell: Cell, begun: Findings) -> Row | None:
    """Find the same model under its other sizing: many are published as large as Graph-Mamba."""
    if cell.figure != "mixers":
        return None
    own = experiment_of(cell.benchmark, cell.model, cell.sizing)
    for row in begun.mixers:
        if (row.benchmark, row.model) == (cell.benchmark, cell.model) and is_the_same_work(
            own, experiment_of(row.benchmark, row.model, row.sizing)
        ):
            return replace(row, sizing=cell.sizing)
    return None


def _check_source(source: str, cell: Cell, begun: Findings) -> None:
    """Refuse to set other graphs of a set beside those that were measured before."""
    for known, row in begun.rows.items():
        if known.benchmark == cell.benchmark and row.source != source:
            raise UserError(
                f"root must hold the graphs of '{cell.benchmark}' that folder was begun with "
                f"({row.source}), got others ({source}): name another folder"
            )


def _affordable(cap: int, device: torch.device) -> int:
    """Keep a study on a CPU within half of the machine's memory; a GPU refuses by itself."""
    if device.type == "cuda":
        return cap
    return min(cap, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)

"""`graphmamba study efficiency`: the paper's two figures of operations, memory and time."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from graphmamba.checks import check_least
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.parse import parse
from graphmamba.studies.cost import (
    Cost,
    LargestBatch,
    PrecomputedGraphs,
    StudyGraphs,
    Subject,
    largest_batch,
    measure_cost,
    study_graphs,
)
from graphmamba.studies.memory import capped, parse_bytes, released_bytes, settled
from graphmamba.studies.report import page
from graphmamba.training.distributed import rounded_products
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.stop import StopSignals

Figure = Literal["fractions", "models", "batches"]
"""Tables of the study, the most telling first."""
Sizing = Literal["published", "matched"]
"""`published`: each model's own config; `matched`: Graph-Mamba's config with the global model
exchanged, so that width and depth are the same. The published baselines differ in both."""
SIZINGS: dict[Sizing, str] = {"published": "as published", "matched": "same width and depth"}
"""What figures and tables call them."""

TITLES = {
    "graph-mamba": "Graph-Mamba",
    "gps-transformer": "Transformer",
    "gps-performer": "Performer",
    "gps-bigbird": "BigBird",
    "exphormer": "Exphormer",
    "gatedgcn": "GatedGCN alone",
}
"""The models of the second figure by the names of their configs."""
OURS = "graph-mamba"
FIRST_FIGURE = (OURS, "gps-transformer")
"""Models of the first figure: 285,125 and 286,725 parameters."""
FIRST_SET = "malnet-tiny"
PAPER_BATCH = 256
"""Whole MalNet-Tiny graphs that the paper says fit into 24 GB with Graph-Mamba."""
FILE = "efficiency.json"
"""Holds all rows; from it a study goes on."""
MAY_DIFFER = {"date", "platform", "cores"}
"""What of the environment no number of the study follows from."""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    fractions: tuple[float, ...] = (0.05, *(tenth / 10 for tenth in range(1, 11)))
    """Shares of the nodes of each MalNet-Tiny graph."""
    batch_size: int = 16
    """Of the first figure."""
    batches: int = 4
    """Batches of each measurement."""
    largest: int = 1024
    """Where the search for the largest batch ends at last."""
    sets: tuple[str, ...] = ("pcqm-contact", "cluster", "peptides-func", "pascalvoc-sp")
    """Of the second figure; batches have the size that Graph-Mamba is trained with."""
    models: tuple[str, ...] = tuple(TITLES)
    """Of the second figure."""
    largest_batch_size: int | None = None
    """Bound on that size."""
    scale: float = 1.0
    """Size of the graphs over that of the benchmarks' own."""
    repeats: int = 5
    """Steps timed with each batch."""


FULL = Plan()
QUICK = Plan(
    fractions=(0.1, 0.5, 1.0), batch_size=4, batches=1, largest=16, largest_batch_size=4,
    scale=0.1, repeats=1,
)  # fmt: skip
"""Small graphs and few of them: a minute on a laptop."""


class Claim(NamedTuple):
    """What the paper says Graph-Mamba saves: shares of a baseline's memory and operations."""

    benchmark: str
    baseline: str
    memory: float
    flops: float


CLAIMS = (
    Claim("peptides-func", "gps-transformer", memory=0.74, flops=0.66),
    Claim("peptides-func", "exphormer", memory=0.40, flops=0.40),
)


def experiment_of(benchmark: str, model: str, sizing: Sizing) -> Experiment:
    """Make the experiment of a model, as published or as wide and deep as Graph-Mamba."""
    own = load_experiment(f"{benchmark}/{model}")
    if sizing == "published":
        return own
    base = load_experiment(f"{benchmark}/{OURS}")
    # Performer's published heads are as wide as if the model were far larger.
    attention = replace(own.model.attention, head_width=None)
    return replace(
        base, model=replace(base.model, global_model=own.model.global_model, attention=attention)
    )


def is_the_same_work(one: Experiment, other: Experiment) -> bool:
    """Tell whether a step of both costs the same.

    `optim` and `train` only say how they are trained, and Mamba alone reads how nodes are ordered.
    """
    model = one.model
    if model.global_model != "mamba":
        same = other.model
        model = replace(model, ordering=same.ordering, mamba=same.mamba, input_norm=same.input_norm)
    return replace(one, model=model, optim=other.optim, train=other.train) == other


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    figure: Figure
    benchmark: str
    model: str
    sizing: Sizing = "published"
    fraction: float = 1.0

    def __str__(self) -> str:
        about = {"fractions": f"at {self.fraction:g} {self.model}",
                 "models": f"{self.model} {self.sizing}",
                 "batches": f"{self.model} largest batch"}  # fmt: skip
        return f"{self.benchmark} {about[self.figure]}"


NAMES: dict[Figure, tuple[str, ...]] = {
    "fractions": ("model", "fraction"),
    "batches": ("model",),
    "models": ("benchmark", "model", "sizing"),
}
"""Entries of a cell that a row of its table has in the files."""


def cells(plan: Plan) -> list[Cell]:
    """List all measurements in the order of the tables."""
    return [
        *(
            Cell("fractions", FIRST_SET, model, fraction=fraction)
            for fraction in plan.fractions
            for model in FIRST_FIGURE
        ),
        *(
            Cell("models", benchmark, model, sizing)
            for benchmark in plan.sets
            for sizing in SIZINGS
            for model in plan.models
        ),
        *(Cell("batches", FIRST_SET, model) for model in FIRST_FIGURE),
    ]


@dataclass(frozen=True)
class Row:
    """One measurement that was made."""

    cell: Cell
    source: str
    """Where its graphs come from."""
    found: Cost | LargestBatch
    held_bytes: int = 0
    """On a GPU before the cell was begun; in no peak."""

    def content(self) -> dict[str, object]:
        """As JSON has it, in the list of its figure."""
        found = "largest" if isinstance(self.found, LargestBatch) else "cost"
        names = {name: getattr(self.cell, name) for name in NAMES[self.cell.figure]}
        rest = {"source": self.source, found: asdict(self.found), "held_bytes": self.held_bytes}
        return names | rest


@dataclass(frozen=True)
class Findings:
    """All that was measured."""

    plan: Plan
    memory_cap: int
    environment: Mapping[str, object]
    rows: Mapping[Cell, Row] = field(default_factory=dict)

    def of(self, figure: Figure) -> list[Row]:
        """Rows of one table, in the order of the plan."""
        placed = (cell for cell in cells(self.plan) if cell.figure == figure)
        return [self.rows[cell] for cell in placed if cell in self.rows]

    def costs(self, figure: Figure) -> list[tuple[Cell, Cost]]:
        """What was measured for one of the figures."""
        rows = self.of(figure)
        return [(row.cell, row.found) for row in rows if isinstance(row.found, Cost)]

    def content(self) -> dict[str, object]:
        """All of it, as JSON can write it."""
        figures: tuple[Figure, ...] = ("fractions", "batches", "models")
        return {
            "plan": asdict(self.plan),
            "memory_cap": self.memory_cap,
            "environment": dict(self.environment),
            **{figure: [row.content() for row in self.of(figure)] for figure in figures},
        }


def read_findings(folder: Path, begun: Findings) -> Findings:
    """Read what a folder holds of this study; nothing where it was not begun there.

    Args:
        folder: Where the study is written to.
        begun: The study without rows; one that measured something else is rejected.
    """
    path = folder / FILE
    if not path.exists():
        return begun
    rows: dict[Cell, Row] = {}
    where = f"'{path}'"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for figure in get_args(Figure):
            for row in content[figure]:
                names = {name: row[name] for name in NAMES[figure]}
                cell = parse(Cell, {"figure": figure, "benchmark": FIRST_SET, **names}, where)
                found: Cost | LargestBatch
                if figure == "batches":
                    found = parse(LargestBatch, row["largest"], where)
                else:
                    found = parse(Cost, row["cost"], where)
                rows[cell] = Row(cell, row["source"], found, row.get("held_bytes", 0))
        there = asdict(parse(Plan, content["plan"], f"{where}: plan"))
        there |= {"memory_cap": content["memory_cap"], **content["environment"]}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{where} must be a file of this study: {error}") from error
    here = {**asdict(begun.plan), "memory_cap": begun.memory_cap, **begun.environment}
    for name, value in here.items():
        if there.get(name) != value and name not in MAY_DIFFER:
            raise UserError(
                f"out_dir must hold a study with {name} {value!r}, and '{folder}' holds one with "
                f"{there.get(name)!r}: name another out_dir"
            )
    return replace(begun, environment=content["environment"], rows=rows)


class Bench:
    """Where and on what is measured; graphs are chosen once for all cells that share them.

    Args:
        plan: How much is measured.
        device: Where.
        memory_cap: Bytes that a step may take.
        data_dir: Where data sets are; None for the default place.
    """

    def __init__(
        self, plan: Plan, device: torch.device, memory_cap: int, data_dir: Path | None = None
    ) -> None:
        self.plan, self.device, self.memory_cap, self.data_dir = plan, device, memory_cap, data_dir
        self._graphs: dict[tuple[str, int], StudyGraphs] = {}
        self._precomputed: dict[tuple[str, int, float], PrecomputedGraphs] = {}

    def measure(self, cell: Cell) -> Row:
        """Make one measurement; running out of memory is an outcome as well.

        Raises:
            HeldMemoryError: Memory of earlier measurements is not given back.
        """
        source, held = self.source(cell), released_bytes(self.device)
        size, plan, cap = self._batch_size(cell), self.plan, self.memory_cap
        key = cell.benchmark, size, cell.fraction
        if key not in self._precomputed:
            chosen = self._graphs[cell.benchmark, size].subsampled(cell.fraction)
            self._precomputed[key] = PrecomputedGraphs(chosen)
        experiment = experiment_of(cell.benchmark, cell.model, cell.sizing)
        subject = Subject(experiment, self._precomputed[key], self.device)
        found: Cost | LargestBatch
        if cell.figure == "batches":
            found = largest_batch(subject, plan.largest, cap)
        else:
            found = measure_cost(subject, size, plan.batches, cap, plan.repeats)
        return Row(cell, source, found, held)

    def source(self, cell: Cell) -> str:
        """Say where the graphs of a cell come from."""
        key = cell.benchmark, self._batch_size(cell)
        if key not in self._graphs:
            count = key[1] * self.plan.batches
            self._graphs[key] = study_graphs(
                cell.benchmark, count, self.data_dir, scale=self.plan.scale
            )
        return self._graphs[key].source

    def _batch_size(self, cell: Cell) -> int:
        """That of the plan in the first figure, that of Graph-Mamba's recipe in the second."""
        if cell.figure != "models":
            return self.plan.batch_size
        size = experiment_of(cell.benchmark, OURS, "published").train.batch_size
        return min(size, self.plan.largest_batch_size or size)


def efficiency(
    out_dir: Path = Path("efficiency"),
    device: str = "auto",
    memory_cap: str = "24GB",
    quick: bool = False,
    data_dir: Path | None = None,
    *,
    max_time: float = math.inf,
) -> None:
    """Measure FLOPs, memory and time of Graph-Mamba and its baselines: the paper's two figures.

    The same command resumes a study that was stopped.

    Args:
        out_dir: Output directory of the CSV, JSON, PNG and SVG files.
        device: auto, cpu or cuda.
        memory_cap: Memory limit of a training step, such as 24GB; beyond it, the result is OOM.
        quick: Use a few small generated graphs.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        max_time: Start no further measurement after this many seconds.
    """
    from rich.console import Console

    from graphmamba.studies.efficiency_report import print_findings, write_findings, write_rows

    check_least("max_time", max_time, 0)
    if out_dir.exists() and not out_dir.is_dir():
        raise UserError(f"out_dir must be a directory, got the file '{out_dir}'")
    where = resolve_device(device)
    cap = parse_bytes("memory_cap", memory_cap)
    if where.type == "cpu":
        # a GPU rejects by itself; a study on a CPU stays within half of the machine's memory
        cap = min(cap, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    bench = Bench(QUICK if quick else FULL, where, cap, data_dir)
    findings = read_findings(out_dir, Findings(bench.plan, cap, describe(where)))
    with (
        StopSignals(max_time, math.inf) as stops,
        Console(stderr=True).status("measuring") as status,
    ):
        for found in run(bench, findings, status.update, stops):
            # whatever ends the study later, what there is stays
            write_rows(found, out_dir)
            findings = found
    write_findings(findings, out_dir)
    print_findings(findings, out_dir, page(), missing_in(findings))


def missing_in(findings: Findings) -> list[Cell]:
    """List what was not measured yet so that a study that is cut off has the best of it.

    Whole MalNet-Tiny graphs and ever smaller shares of them, then the sets that the paper makes
    claims about, the others, and the largest batches, which take longest.
    """
    claimed = {claim.benchmark for claim in CLAIMS}

    def rank(cell: Cell) -> tuple[int, float, bool]:
        return get_args(Figure).index(cell.figure), -cell.fraction, cell.benchmark not in claimed

    missing = (cell for cell in cells(findings.plan) if cell not in findings.rows)
    return sorted(missing, key=rank)


def run(
    bench: Bench,
    begun: Findings,
    tell: Callable[[str], object],
    stops: StopSignals | None = None,
) -> Iterator[Findings]:
    """Measure all rows that are missing, telling each; yields what there is after each of them.

    Args:
        bench: Where and on what is measured.
        begun: What there is already.
        tell: Gets a line for each row.
        stops: Says when to begin no further row; None goes on to the end.
    """
    with (
        settled(),
        # as training does unless it is asked not to
        rounded_products(bench.device, RunOptions().tf32),
        capped(bench.device, bench.memory_cap),
    ):
        for cell in missing_in(begun):
            if stops is not None and (stops.is_over or stops.is_signalled):
                return
            source = bench.source(cell)
            for known, other in begun.rows.items():
                if known.benchmark == cell.benchmark and other.source != source:
                    raise UserError(
                        f"data_dir must hold the graphs of '{cell.benchmark}' that out_dir was "
                        f"begun with ({other.source}), got others ({source}): name another out_dir"
                    )
            row = _measured_before(cell, begun) or bench.measure(cell)
            begun = replace(begun, rows={**begun.rows, cell: row})
            tell(f"measured {cell}")
            yield begun


def _measured_before(cell: Cell, begun: Findings) -> Row | None:
    """Find the same model under its other sizing: many are published as large as Graph-Mamba."""
    if cell.figure != "models":
        return None
    own = experiment_of(cell.benchmark, cell.model, cell.sizing)
    for row in begun.of("models"):
        same = row.cell.benchmark == cell.benchmark and row.cell.model == cell.model
        if same and is_the_same_work(
            own, experiment_of(cell.benchmark, cell.model, row.cell.sizing)
        ):
            return replace(row, cell=cell)
    return None

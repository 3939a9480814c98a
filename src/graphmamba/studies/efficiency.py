"""`graphmamba study efficiency`: the paper's two figures of operations, memory and time."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.text import Text

from graphmamba.checks import check_least
from graphmamba.data.catalog import CATALOG
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.figures import new_figure
from graphmamba.parse import parse
from graphmamba.studies.cost import (
    Cost,
    LargestBatch,
    Subject,
    capped,
    largest_batch,
    measure_cost,
    release,
    study_graphs,
    study_store,
)
from graphmamba.studies.report import (
    COLOURS,
    INK,
    QUIET,
    page,
    save_figure,
    table,
    write_csv,
    write_json,
)
from graphmamba.training.distributed import rounded_products
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.stop import StopSignals

Figure = Literal["fractions", "models", "batches"]
"""Tables of the study."""
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
OUT = "OOM"
"""What stands in a table where memory ran out."""
FILE = "efficiency.json"
"""Holds all rows; a study resumes from it."""
MAY_DIFFER = {"date", "platform", "cores"}
"""Entries of the environment that do not affect the measurements."""
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


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


CLAIMED_SET = "peptides-func"
CLAIMS = {"gps-transformer": (0.74, 0.66), "exphormer": (0.40, 0.40)}
"""What the paper says Graph-Mamba saves: shares of a baseline's memory and operations."""


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

    @property
    def names(self) -> dict[str, object]:
        """Entries that a row of its table has in the files."""
        return {name: getattr(self, name) for name in NAMES[self.figure]}

    def experiment(self) -> Experiment:
        """The model's own experiment, or Graph-Mamba's with the global model exchanged."""
        own = load_experiment(f"{self.benchmark}/{self.model}")
        if self.sizing == "published":
            return own
        base = load_experiment(f"{self.benchmark}/{OURS}")
        # Performer's published heads are as wide as if the model were far larger.
        attention = replace(own.model.attention, head_width=None)
        model = replace(base.model, global_model=own.model.global_model, attention=attention)
        return replace(base, model=model)


NAMES: dict[Figure, tuple[str, ...]] = {
    "fractions": ("model", "fraction"),
    "batches": ("model",),
    "models": ("benchmark", "model", "sizing"),
}


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
        kind = "largest" if isinstance(self.found, LargestBatch) else "cost"
        rest = {"source": self.source, kind: asdict(self.found), "held_bytes": self.held_bytes}
        return self.cell.names | rest

    def columns(self) -> dict[str, object]:
        """As CSV has it; where memory ran out it says so."""
        found = self.found
        if isinstance(found, LargestBatch):
            ended = "the search's limit" if found.is_limit else OUT
            sizes = {"largest_batch": found.batch_size, "peak_bytes": found.peak_bytes}
            measured: dict[str, object] = {**sizes, "ended_by": ended}
        else:
            measured = asdict(found) | {"bytes_per_graph": found.bytes_per_graph}
        shown = {name: OUT if value is None else value for name, value in measured.items()}
        return self.cell.names | shown | {"held_bytes": self.held_bytes, "source": self.source}


@dataclass
class Findings:
    """All that was measured."""

    plan: Plan
    memory_cap: int
    environment: Mapping[str, object]
    rows: dict[Cell, Row] = field(default_factory=dict)

    def of(self, figure: Figure) -> list[Row]:
        """Rows of one table, in the order of the plan."""
        placed = (cell for cell in cells(self.plan) if cell.figure == figure)
        return [self.rows[cell] for cell in placed if cell in self.rows]

    def costs(self, figure: Figure) -> list[tuple[Cell, Cost]]:
        """What was measured for one of the figures."""
        rows = self.of(figure)
        return [(row.cell, row.found) for row in rows if isinstance(row.found, Cost)]

    def largest(self) -> list[tuple[str, LargestBatch]]:
        """The largest batch of each model."""
        rows = ((row.cell.model, row.found) for row in self.of("batches"))
        return [(model, found) for model, found in rows if isinstance(found, LargestBatch)]

    def missing(self) -> list[Cell]:
        """What was not measured yet."""
        return [cell for cell in cells(self.plan) if cell not in self.rows]

    def content(self) -> dict[str, object]:
        """All of it, as JSON can write it."""
        return {
            "plan": asdict(self.plan),
            "memory_cap": self.memory_cap,
            "environment": dict(self.environment),
            **{figure: [row.content() for row in self.of(figure)] for figure in NAMES},
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
    content = json.loads(path.read_text(encoding="utf-8"))
    there = asdict(parse(Plan, content["plan"], f"'{path}': plan"))
    there |= {"memory_cap": content["memory_cap"], **content["environment"]}
    here = {**asdict(begun.plan), "memory_cap": begun.memory_cap, **begun.environment}
    for name, value in here.items():
        if there.get(name) != value and name not in MAY_DIFFER:
            raise UserError(
                f"out_dir must hold a study with {name} {value!r}, and '{folder}' holds one with "
                f"{there.get(name)!r}: name another out_dir"
            )
    rows: dict[Cell, Row] = {}
    for figure, names in NAMES.items():
        for row in content[figure]:
            cell = Cell(figure, **({"benchmark": FIRST_SET} | {name: row[name] for name in names}))
            found = LargestBatch(**row["largest"]) if "largest" in row else Cost(**row["cost"])
            rows[cell] = Row(cell, row["source"], found, row.get("held_bytes", 0))
    return replace(begun, environment=content["environment"], rows=rows)


def measure(
    cell: Cell, plan: Plan, device: torch.device, memory_cap: int, data_dir: Path | None = None
) -> Row:
    """Make one measurement; running out of memory is an outcome as well."""
    release(device)
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    size = plan.batch_size
    if cell.figure == "models":
        # as Graph-Mamba is trained
        size = load_experiment(f"{cell.benchmark}/{OURS}").train.batch_size
        size = min(size, plan.largest_batch_size or size)
    graphs = cell.benchmark, size * plan.batches, data_dir, plan.scale
    subject = Subject(cell.experiment(), partial(study_store, *graphs, cell.fraction), device)
    found: Cost | LargestBatch
    if cell.figure == "batches":
        found = largest_batch(subject, plan.largest, memory_cap)
    else:
        found = measure_cost(subject, size, plan.batches, memory_cap, plan.repeats)
    return Row(cell, study_graphs(*graphs).source, found, held)


def parse_bytes(argument: str, text: str) -> int:
    """Read a size such as 24GB or 512MiB."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)", text.strip())
    unit = found.group(2).upper() if found else ""
    if found is None or unit not in UNITS or not float(found.group(1)):
        raise UserError(f"{argument} must be a size such as 24GB or 512MiB, got {text!r}")
    return int(float(found.group(1)) * UNITS[unit])


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
    check_least("max_time", max_time, 0)
    where, plan = resolve_device(device), QUICK if quick else FULL
    cap = parse_bytes("memory_cap", memory_cap)
    if where.type == "cpu":
        # a GPU rejects by itself; a study on a CPU stays within half of the machine's memory
        cap = min(cap, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    findings = read_findings(out_dir, Findings(plan, cap, describe(where)))
    with (
        StopSignals(max_time, math.inf) as stops,
        Console(stderr=True).status("measuring") as status,
        # as training does unless it is asked not to
        rounded_products(where, RunOptions().tf32),
        capped(where, cap),
    ):
        for cell in findings.missing():
            if stops.is_over or stops.is_signalled:
                break
            status.update(f"measuring {cell}")
            findings.rows[cell] = measure(cell, plan, where, cap, data_dir)
            # whatever ends the study later, what there is stays
            write_rows(findings, out_dir)
    write_rows(findings, out_dir)
    if not findings.missing():
        plot_fractions(findings, out_dir)
        plot_models(findings, out_dir)
    print_findings(findings, out_dir, page())


def write_rows(findings: Findings, folder: Path) -> None:
    """Write CSV and JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, {**findings.content(), "claims": claims(findings)})
    names: dict[Figure, str] = {"fractions": "malnet", "batches": "largest_batch"}
    for figure in NAMES:
        rows = [row.columns() for row in findings.of(figure)]
        write_csv(folder / f"{names.get(figure, figure)}.csv", rows)


def claims(findings: Findings) -> list[dict[str, object]]:
    """Set what the paper says is saved beside what was measured, for each way to size models."""
    costs = {
        (cell.sizing, cell.model): cost
        for cell, cost in findings.costs("models")
        if cell.benchmark == CLAIMED_SET
    }
    found: list[dict[str, object]] = []
    for model, (memory, flops) in CLAIMS.items():
        for sizing in SIZINGS:
            ours, baseline = costs.get((sizing, OURS)), costs.get((sizing, model))
            if ours is None or baseline is None:
                continue
            here, there = ours.bytes_per_graph, baseline.bytes_per_graph
            found.append(
                {
                    "benchmark": CLAIMED_SET,
                    "baseline": model,
                    "sizing": sizing,
                    "memory_saved": 1 - here / there if here and there else None,
                    "memory_saved_in_the_paper": memory,
                    "flops_saved": 1 - ours.forward_flops / baseline.forward_flops,
                    # by our code of the baseline's own, and by the code of the paper
                    "flops_saved_of_original": 1 - ours.forward_flops / baseline.original_flops,
                    "flops_saved_by_original": 1 - ours.original_flops / baseline.original_flops,
                    "flops_saved_in_the_paper": flops,
                }
            )
    return found


COLUMNS: dict[str, Callable[[Cost], int | float | None]] = {
    "parameters": lambda cost: cost.parameters,
    "batch": lambda cost: cost.batch_size,
    "nodes": lambda cost: cost.nodes,
    "MFLOP": lambda cost: cost.forward_flops / 1e6,
    "original": lambda cost: cost.original_flops / 1e6,
    "MB": lambda cost: None if cost.peak_bytes is None else cost.peak_bytes / cost.batch_size / 1e6,
    "ms": lambda cost: cost.ms,
}
"""The last five are for one graph; original operations are those of the authors' code."""


def print_findings(findings: Findings, folder: Path, console: Console) -> None:
    """Print what was measured beside what the paper says, and what is missing."""

    def shown(value: int | float | None) -> str:
        return OUT if value is None else f"{value:,}" if value % 1 == 0 else f"{value:,.2f}"

    cap = f"{findings.memory_cap / 1e9:.3g} GB"
    for figure in ("fractions", "models"):
        rows = [
            [*map(str, cell.names.values()), *(shown(read(cost)) for read in COLUMNS.values())]
            for cell, cost in findings.costs(figure)
        ]
        title = f"{figure}, on {findings.environment['device']}, at most {cap}"
        console.print(table(title, [*NAMES[figure], *COLUMNS], rows, len(NAMES[figure])))
    rows = [
        [TITLES[model], "limit" if found.is_limit else OUT, str(found.batch_size)]
        for model, found in findings.largest()
    ]
    title = f"Largest batch of whole MalNet-Tiny graphs in {cap} (paper: {OURS} {PAPER_BATCH})"
    console.print(table(title, ["model", "ended by", "batch"], rows))
    for claim in claims(findings):
        saved = (
            f"{name.replace('_', ' ')} {100 * value:.0f} %"
            for name, value in claim.items()
            if isinstance(value, float)
        )
        names = (str(claim[name]) for name in NAMES["models"] if name in claim)
        console.print(f"{' '.join(names)} against {claim['baseline']}: {', '.join(saved)}")
    sources = sorted({row.source for row in findings.rows.values()})
    # a path may well look like markup
    console.print(Text(f"Graphs: {'; '.join(sources) or 'none was measured'}\nFiles: {folder}"))
    if missing := findings.missing():
        listed = "; ".join(map(str, missing))
        console.print(
            f"{len(missing)} measurements are missing; the same command resumes: {listed}"
        )


QUANTITIES = {
    "operations of a forward pass, GFLOP per graph": lambda cost: cost.forward_flops / 1e9,
    "peak memory of a step, MB per graph": COLUMNS["MB"],
    "time of a step without CUDA graphs, ms per graph": COLUMNS["ms"],
}
COLOUR_OF = dict(zip(TITLES, COLOURS, strict=True))
MARKERS = dict(zip(TITLES, "osD^vX", strict=True))


def plot_fractions(findings: Findings, folder: Path) -> None:
    """Draw the first figure: what a graph takes against the share of its nodes."""
    costs = findings.costs("fractions")
    figure = new_figure(13.5, 4.0)
    panels = figure.subplots(1, 4, width_ratios=(3, 3, 3, 1.6))
    for panel, (title, read) in zip(panels, QUANTITIES.items(), strict=False):
        top = 0.0
        for model in FIRST_FIGURE:
            points = [(cell.fraction, read(cost)) for cell, cost in costs if cell.model == model]
            drawn = [(share, value) for share, value in points if value is not None]
            shares, values = [share for share, _ in drawn], [value for _, value in drawn]
            style = {"color": COLOUR_OF[model], "marker": MARKERS[model], "markersize": 4.5}
            panel.plot(shares, values, **style)
            if drawn:
                # a line's name at its end, and where memory ran out it says so
                text = TITLES[model] + (f", then {OUT}" if len(drawn) < len(points) else "")
                panel.annotate(
                    text, drawn[-1], xytext=(-4, 5), textcoords="offset points", ha="right",
                    fontsize=8.5, color=COLOUR_OF[model],
                )  # fmt: skip
            top = max([top, *values])
        panel.set_title(title, fontsize=9, loc="left", color=INK)
        widest = 1.02 * max(cell.fraction for cell, _ in costs)
        # room for the name of the highest line
        panel.set(xlabel="share of the nodes", xlim=(0, widest), ylim=(0, 1.12 * top or 1))
    _draw_largest(panels[3], findings)
    figure.suptitle(
        f"MalNet-Tiny with a share of the nodes, batches of {costs[0][1].batch_size}, "
        f"{findings.environment['device']}, at most {findings.memory_cap / 1e9:.3g} GB",
        fontsize=11, x=0.01, ha="left", color=INK,
    )  # fmt: skip
    save_figure(figure, folder / "malnet")


def _draw_largest(panel: Any, findings: Findings) -> None:
    """Draw a bar for each model."""
    panel.set_title("largest batch", fontsize=9, loc="left", color=INK)
    found = findings.largest()
    for place, (model, largest) in enumerate(found):
        size = largest.batch_size
        panel.bar(place, size, width=0.6, color=COLOUR_OF[model])
        panel.annotate(
            f"{size}+" if largest.is_limit else str(size), (place, max(size, 1)), xytext=(0, 3),
            textcoords="offset points", ha="center", fontsize=9, color=INK,
        )  # fmt: skip
    panel.axhline(PAPER_BATCH, color=QUIET, linewidth=1, linestyle="--")
    # below the bars, where no bar can hide it
    panel.set_xlabel(f"-- the paper's Graph-Mamba, {PAPER_BATCH}", fontsize=8, color=QUIET)
    panel.set_xlim(-0.6, len(found) - 0.4)
    panel.set_xticks(range(len(found)), [TITLES[model] for model, _ in found])
    panel.tick_params(axis="x", labelsize=8, length=0)
    panel.set_yscale("log", base=2)
    panel.set_ylim(1, 2 * max([PAPER_BATCH, *(largest.batch_size for _, largest in found)]))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def plot_models(findings: Findings, folder: Path) -> None:
    """Draw the second figure: operations against memory of each model on each set."""
    costs = findings.costs("models")
    sets = list(dict.fromkeys(cell.benchmark for cell, _ in costs))
    figure = new_figure(3.3 * len(sets), 6.4)
    panels = figure.subplots(2, len(sets), squeeze=False)
    for line, (sizing, means) in enumerate(SIZINGS.items()):
        for panel, benchmark in zip(panels[line], sets, strict=True):
            own = [
                (cell.model, cost)
                for cell, cost in costs
                if (cell.benchmark, cell.sizing) == (benchmark, sizing)
            ]
            _draw_trade(panel, own)
            panel.set_title(CATALOG[benchmark].title, fontsize=10, loc="left", color=INK)
        panels[line, 0].set_ylabel(f"{means}\npeak memory, MB per graph", fontsize=9)
    for panel in panels[1]:
        panel.set_xlabel("forward pass, MFLOP per graph", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=len(TITLES),
                  frameon=False, fontsize=9)  # fmt: skip
    save_figure(figure, folder / "models")


def _draw_trade(panel: Any, costs: list[tuple[str, Cost]]) -> None:
    """Draw a point for each model, ours last, where no other can hide it."""
    from matplotlib.ticker import LogLocator, NullLocator

    memory = {model: COLUMNS["MB"](cost) for model, cost in costs}
    top = max((value for value in memory.values() if value is not None), default=1.0)
    for model, cost in reversed(costs):
        place = cost.forward_flops / 1e6, top if memory[model] is None else memory[model]
        panel.scatter(
            *place, s=52, label=TITLES[model], color=COLOUR_OF[model], marker=MARKERS[model],
            edgecolors="white", linewidths=0.8, zorder=3,
        )  # fmt: skip
        if memory[model] is None:
            panel.annotate(
                OUT, place, xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8,
                color=COLOUR_OF[model],
            )  # fmt: skip
    # plain numbers at 1, 2 and 5 times the powers of ten
    panel.set(xscale="log", yscale="log")
    panel.margins(0.12)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")

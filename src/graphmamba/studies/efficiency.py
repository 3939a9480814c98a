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
from graphmamba.studies.cost import (
    Workload,
    largest_batch,
    limited_memory,
    measure_cost,
    release_memory,
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
from graphmamba.training.distributed import allow_tf32
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.stop import StopSignals

Figure = Literal["fractions", "models", "batches"]
"""`fractions` and `batches` make the first figure, `models` makes the second."""
Sizing = Literal["published", "matched"]
"""`published`: each model's own preset; `matched`: Graph-Mamba's preset with another global model,
so that width and depth are equal."""
SIZINGS: dict[Sizing, str] = {"published": "as published", "matched": "same width and depth"}
TITLES = {
    "graph-mamba": "Graph-Mamba",
    "gps-transformer": "Transformer",
    "gps-performer": "Performer",
    "gps-bigbird": "BigBird",
    "exphormer": "Exphormer",
    "gatedgcn": "GatedGCN alone",
}
"""Models of the second figure, by preset."""
OURS = "graph-mamba"
FIRST_MODELS = (OURS, "gps-transformer")
FIRST_SET = "malnet-tiny"
PAPER_BATCH = 256
"""Largest batch of MalNet-Tiny graphs that fits into 24 GB with Graph-Mamba, by the paper."""
CLAIMED_SET = "peptides-func"
CLAIMS = {"gps-transformer": (0.74, 0.66), "exphormer": (0.40, 0.40)}
"""Shares of a baseline's memory and operations that Graph-Mamba saves, by the paper."""
OOM = "OOM"
NAMES: dict[Figure, tuple[str, ...]] = {
    "fractions": ("model", "fraction"),
    "batches": ("model",),
    "models": ("benchmark", "model", "sizing"),
}
"""What tells the measurements of a figure apart."""
CSV_FILES: dict[Figure, str] = {
    "fractions": "malnet.csv",
    "batches": "largest_batch.csv",
    "models": "models.csv",
}


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    fractions: tuple[float, ...] = (0.05, *(tenth / 10 for tenth in range(1, 11)))
    """Shares of the nodes of each MalNet-Tiny graph."""
    batch_size: int = 16
    """Batch size of the first figure."""
    batches: int = 4
    """Batches per measurement."""
    largest: int = 1024
    """Limit of the search for the largest batch."""
    sets: tuple[str, ...] = ("pcqm-contact", "cluster", "peptides-func", "pascalvoc-sp")
    """Data sets of the second figure, with the batch size that Graph-Mamba is trained with."""
    models: tuple[str, ...] = tuple(TITLES)
    """Models of the second figure."""
    largest_batch_size: int | None = None
    """Limit on the batch size of the second figure."""
    scale: float = 1.0
    """Size of the graphs relative to the data set's."""
    repeats: int = 5
    """Timed steps per batch."""


FULL = Plan()
QUICK = Plan(
    fractions=(0.1, 0.5, 1.0), batch_size=4, batches=1, largest=16, largest_batch_size=4,
    scale=0.1, repeats=1,
)  # fmt: skip
"""Takes a minute on a laptop."""


@dataclass(frozen=True)
class Cell:
    """One model on one data set, to be measured."""

    figure: Figure
    benchmark: str
    model: str
    sizing: Sizing = "published"
    fraction: float = 1.0

    def __str__(self) -> str:
        about = {
            "fractions": f"at {self.fraction:g} {self.model}",
            "models": f"{self.model} {self.sizing}",
            "batches": f"{self.model} largest batch",
        }
        return f"{self.benchmark} {about[self.figure]}"

    @property
    def names(self) -> dict[str, Any]:
        """What tells it apart from the others of its figure."""
        return {name: getattr(self, name) for name in NAMES[self.figure]}

    def experiment(self) -> Experiment:
        """Load the model's preset, or Graph-Mamba's with the model's global model."""
        own = load_experiment(f"{self.benchmark}/{self.model}")
        if self.sizing == "published":
            return own
        base = load_experiment(f"{self.benchmark}/{OURS}")
        # Performer's published heads have the width of a far larger model
        attention = replace(own.model.attention, head_width=None)
        model = replace(base.model, global_model=own.model.global_model, attention=attention)
        return replace(base, model=model)


def cells(plan: Plan) -> list[Cell]:
    """List all measurements, in the order in which they are made and shown."""
    return [
        *(
            Cell("fractions", FIRST_SET, model, fraction=fraction)
            for fraction in plan.fractions
            for model in FIRST_MODELS
        ),
        *(
            Cell("models", benchmark, model, sizing)
            for benchmark in plan.sets
            for sizing in SIZINGS
            for model in plan.models
        ),
        *(Cell("batches", FIRST_SET, model) for model in FIRST_MODELS),
    ]


Row = dict[str, Any]
"""A measurement as in `efficiency.json`: the cell's names, `source`, `held_bytes`, and `cost`
(`Cost`) or `largest` (`LargestBatch`)."""


@dataclass
class Study:
    """The measurements made so far."""

    plan: Plan
    memory_cap: int
    environment: Mapping[str, object]
    rows: dict[Cell, Row] = field(default_factory=dict)

    def of(self, figure: Figure) -> list[tuple[Cell, Row]]:
        """Rows of a figure, in the order of the plan."""
        own = (cell for cell in cells(self.plan) if cell.figure == figure and cell in self.rows)
        return [(cell, self.rows[cell]) for cell in own]

    def missing(self) -> list[Cell]:
        """Measurements still to be made."""
        return [cell for cell in cells(self.plan) if cell not in self.rows]

    def title(self) -> str:
        """Device and memory limit."""
        return f"{self.environment['device']}, at most {self.memory_cap / 1e9:.3g} GB"


def resume(study: Study, folder: Path) -> None:
    """Add the measurements in a folder; those of another plan or machine are rejected."""
    path = folder / "efficiency.json"
    if not path.exists():
        return
    content = json.loads(path.read_text(encoding="utf-8"))
    plan = json.loads(json.dumps(asdict(study.plan)))
    here = {**plan, "memory_cap": study.memory_cap, **study.environment}
    there = {**content["plan"], "memory_cap": content["memory_cap"], **content["environment"]}
    for name in here.keys() - {"date", "platform", "cores"}:
        if there.get(name) != here[name]:
            raise UserError(
                f"out_dir must hold a study with {name} {here[name]!r}, and '{folder}' holds one "
                f"with {there.get(name)!r}: name another out_dir"
            )
    study.environment = content["environment"]
    for cell in cells(study.plan):
        for row in content[cell.figure]:
            if row.items() >= cell.names.items():
                study.rows[cell] = row


def measure(
    cell: Cell, plan: Plan, device: torch.device, memory_cap: int, data_dir: Path | None = None
) -> Row:
    """Measure one model on one data set; running out of memory is a result."""
    release_memory(device)
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    size = plan.batch_size
    if cell.figure == "models":
        size = load_experiment(f"{cell.benchmark}/{OURS}").train.batch_size
        size = min(size, plan.largest_batch_size or size)
    graphs = cell.benchmark, size * plan.batches, data_dir, plan.scale
    workload = Workload(cell.experiment(), partial(study_store, *graphs, cell.fraction), device)
    row = cell.names | {"source": study_graphs(*graphs)[1]}
    if cell.figure == "batches":
        row["largest"] = asdict(largest_batch(workload, plan.largest, memory_cap))
    else:
        cost = measure_cost(workload, size, plan.batches, memory_cap, plan.repeats)
        row["cost"] = asdict(cost)
    return row | {"held_bytes": held}


def parse_bytes(argument: str, text: str) -> int:
    """Read a size such as 24GB or 512MiB."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMG])(I?)B", text.strip(), re.IGNORECASE)
    if found is None or not float(found.group(1)):
        raise UserError(f"{argument} must be a size such as 24GB or 512MiB, got {text!r}")
    power = 1 + "KMG".index(found.group(2).upper())
    return int(float(found.group(1)) * (1024 if found.group(3) else 1000) ** power)


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
        # a CPU would swap or kill the process where a GPU raises: at most half of the memory
        cap = min(cap, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    study = Study(plan, cap, describe(where))
    resume(study, out_dir)
    with (
        StopSignals(max_time, math.inf) as stops,
        Console(stderr=True).status("measuring") as status,
        allow_tf32(where, RunOptions().tf32),  # as in training
        limited_memory(where, cap),
    ):
        for cell in study.missing():
            if stops.is_over or stops.is_signalled:
                break
            status.update(f"measuring {cell}")
            study.rows[cell] = measure(cell, plan, where, cap, data_dir)
            write_rows(study, out_dir)
    write_rows(study, out_dir)
    if not study.missing():
        plot_fractions(study, out_dir)
        plot_models(study, out_dir)
    print_study(study, out_dir, page())


def write_rows(study: Study, folder: Path) -> None:
    """Write the CSV and JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "plan": asdict(study.plan),
        "memory_cap": study.memory_cap,
        "environment": study.environment,
    }
    for figure in NAMES:
        content[figure] = [row for _, row in study.of(figure)]
    content["claims"] = claims(study)
    write_json(folder / "efficiency.json", content)
    for figure, file in CSV_FILES.items():
        write_csv(folder / file, [_csv_row(*each) for each in study.of(figure)])


def _csv_row(cell: Cell, row: Row) -> dict[str, Any]:
    if "largest" in row:
        largest = row["largest"]
        found = {
            "largest_batch": largest["batch_size"],
            "peak_bytes": largest["peak_bytes"],
            "ended_by": "the search's limit" if largest["is_limit"] else OOM,
        }
    else:
        found = row["cost"] | {"bytes_per_graph": _bytes_per_graph(row["cost"])}
    shown = {name: OOM if value is None else value for name, value in found.items()}
    return cell.names | shown | {"held_bytes": row["held_bytes"], "source": row["source"]}


def _bytes_per_graph(cost: Row) -> float | None:
    return None if cost["peak_bytes"] is None else cost["peak_bytes"] / cost["batch_size"]


def claims(study: Study) -> list[dict[str, Any]]:
    """Compare what Graph-Mamba saves with what the paper says, for each sizing."""
    costs = {
        (cell.sizing, cell.model): row["cost"]
        for cell, row in study.of("models")
        if cell.benchmark == CLAIMED_SET
    }
    found = []
    for model, (memory, flops) in CLAIMS.items():
        for sizing in SIZINGS:
            ours, baseline = costs.get((sizing, OURS)), costs.get((sizing, model))
            if ours is None or baseline is None:
                continue
            here, there = _bytes_per_graph(ours), _bytes_per_graph(baseline)
            here_flops, original = ours["forward_flops"], baseline["original_flops"]
            found.append(
                {
                    "benchmark": CLAIMED_SET,
                    "baseline": model,
                    "sizing": sizing,
                    "memory_saved": 1 - here / there if here and there else None,
                    "memory_saved_in_the_paper": memory,
                    "flops_saved": 1 - here_flops / baseline["forward_flops"],
                    # our code against the baseline authors' code, and both authors' code
                    "flops_saved_of_original": 1 - here_flops / original,
                    "flops_saved_by_original": 1 - ours["original_flops"] / original,
                    "flops_saved_in_the_paper": flops,
                }
            )
    return found


COLUMNS: dict[str, Callable[[Row], int | float | None]] = {
    "parameters": lambda cost: cost["parameters"],
    "batch": lambda cost: cost["batch_size"],
    "nodes": lambda cost: cost["nodes"],
    "MFLOP": lambda cost: cost["forward_flops"] / 1e6,
    "original": lambda cost: cost["original_flops"] / 1e6,
    "MB": lambda cost: cost["peak_bytes"] and cost["peak_bytes"] / cost["batch_size"] / 1e6,
    "ms": lambda cost: cost["ms"],
}
"""Columns of the printed tables; the last five are per graph, `original` is the authors' code."""


def print_study(study: Study, folder: Path, console: Console) -> None:
    """Print the measurements, the paper's claims, and what is missing."""

    def shown(value: int | float | None) -> str:
        return OOM if value is None else f"{value:,}" if value % 1 == 0 else f"{value:,.2f}"

    figures: tuple[Figure, ...] = ("fractions", "models")
    for figure in figures:
        rows = [
            [*map(str, cell.names.values()), *(shown(of(row["cost"])) for of in COLUMNS.values())]
            for cell, row in study.of(figure)
        ]
        names = NAMES[figure]
        console.print(table(f"{figure}, on {study.title()}", [*names, *COLUMNS], rows, len(names)))
    largest = [(cell, row["largest"]) for cell, row in study.of("batches")]
    rows = [
        [TITLES[cell.model], "limit" if found["is_limit"] else OOM, str(found["batch_size"])]
        for cell, found in largest
    ]
    cap = f"{study.memory_cap / 1e9:.3g} GB"
    title = f"Largest batch of whole MalNet-Tiny graphs in {cap} (paper: {OURS} {PAPER_BATCH})"
    console.print(table(title, ["model", "ended by", "batch"], rows))
    for claim in claims(study):
        saved = (
            f"{name.replace('_', ' ')} {100 * value:.0f} %"
            for name, value in claim.items()
            if isinstance(value, float)
        )
        about = f"{claim['benchmark']} {claim['sizing']} against {claim['baseline']}"
        console.print(f"{about}: {', '.join(saved)}")
    sources = sorted({row["source"] for row in study.rows.values()})
    # as Text, since a path may look like markup
    console.print(Text(f"Graphs: {'; '.join(sources) or 'none was measured'}\nFiles: {folder}"))
    if missing := study.missing():
        listed = "; ".join(map(str, missing))
        console.print(
            f"{len(missing)} measurements are missing; the same command resumes: {listed}"
        )


QUANTITIES: dict[str, Callable[[Row], float | None]] = {
    "operations of a forward pass, GFLOP per graph": lambda cost: cost["forward_flops"] / 1e9,
    "peak memory of a step, MB per graph": COLUMNS["MB"],
    "time of a step without CUDA graphs, ms per graph": COLUMNS["ms"],
}
COLOUR_OF = dict(zip(TITLES, COLOURS, strict=True))
MARKERS = dict(zip(TITLES, "osD^vX", strict=True))


def plot_fractions(study: Study, folder: Path) -> None:
    """Plot the first figure: operations, memory and time by share of the nodes; largest batch."""
    costs = [(cell, row["cost"]) for cell, row in study.of("fractions")]
    figure = new_figure(13.5, 4.0)
    panels = figure.subplots(1, 4, width_ratios=(3, 3, 3, 1.6))
    for panel, (title, quantity) in zip(panels, QUANTITIES.items(), strict=False):
        top = 0.0
        for model in FIRST_MODELS:
            points = [
                (cell.fraction, quantity(cost)) for cell, cost in costs if cell.model == model
            ]
            known = [(share, value) for share, value in points if value is not None]
            shares, values = [share for share, _ in known], [value for _, value in known]
            style = {"color": COLOUR_OF[model], "marker": MARKERS[model], "markersize": 4.5}
            panel.plot(shares, values, **style)
            if known:
                text = TITLES[model] + (f", then {OOM}" if len(known) < len(points) else "")
                panel.annotate(
                    text, known[-1], xytext=(-4, 5), textcoords="offset points", ha="right",
                    fontsize=8.5, color=COLOUR_OF[model],
                )  # fmt: skip
            top = max([top, *values])
        panel.set_title(title, fontsize=9, loc="left", color=INK)
        widest = 1.02 * max(cell.fraction for cell, _ in costs)
        # room for the name above the highest line
        panel.set(xlabel="share of the nodes", xlim=(0, widest), ylim=(0, 1.12 * top or 1))
    _plot_largest(panels[3], study)
    figure.suptitle(
        f"MalNet-Tiny with a share of the nodes, batches of {costs[0][1]['batch_size']}, "
        f"{study.title()}",
        fontsize=11, x=0.01, ha="left", color=INK,
    )  # fmt: skip
    save_figure(figure, folder / "malnet")


def _plot_largest(panel: Any, study: Study) -> None:
    panel.set_title("largest batch", fontsize=9, loc="left", color=INK)
    found = [(cell.model, row["largest"]) for cell, row in study.of("batches")]
    for place, (model, largest) in enumerate(found):
        size = largest["batch_size"]
        panel.bar(place, size, width=0.6, color=COLOUR_OF[model])
        panel.annotate(
            f"{size}+" if largest["is_limit"] else str(size), (place, max(size, 1)), xytext=(0, 3),
            textcoords="offset points", ha="center", fontsize=9, color=INK,
        )  # fmt: skip
    panel.axhline(PAPER_BATCH, color=QUIET, linewidth=1, linestyle="--")
    # below the axis, where no bar hides it
    panel.set_xlabel(f"-- the paper's Graph-Mamba, {PAPER_BATCH}", fontsize=8, color=QUIET)
    panel.set_xlim(-0.6, len(found) - 0.4)
    panel.set_xticks(range(len(found)), [TITLES[model] for model, _ in found])
    panel.tick_params(axis="x", labelsize=8, length=0)
    panel.set_yscale("log", base=2)
    panel.set_ylim(1, 2 * max([PAPER_BATCH, *(largest["batch_size"] for _, largest in found)]))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def plot_models(study: Study, folder: Path) -> None:
    """Plot the second figure: operations against memory of each model on each data set."""
    costs = [(cell, row["cost"]) for cell, row in study.of("models")]
    sets = list(dict.fromkeys(cell.benchmark for cell, _ in costs))
    figure = new_figure(3.3 * len(sets), 6.4)
    panels = figure.subplots(2, len(sets), squeeze=False)
    for line, (sizing, title) in enumerate(SIZINGS.items()):
        for panel, benchmark in zip(panels[line], sets, strict=True):
            place = benchmark, sizing
            own = {c.model: cost for c, cost in costs if (c.benchmark, c.sizing) == place}
            _plot_tradeoff(panel, own)
            panel.set_title(CATALOG[benchmark].title, fontsize=10, loc="left", color=INK)
        panels[line, 0].set_ylabel(f"{title}\npeak memory, MB per graph", fontsize=9)
    for panel in panels[1]:
        panel.set_xlabel("forward pass, MFLOP per graph", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=len(TITLES),
                  frameon=False, fontsize=9)  # fmt: skip
    save_figure(figure, folder / "models")


def _plot_tradeoff(panel: Any, costs: Mapping[str, Row]) -> None:
    """Plot a point per model, Graph-Mamba's on top; models out of memory at the upper edge."""
    from matplotlib.ticker import LogLocator, NullLocator

    memory = {model: COLUMNS["MB"](cost) for model, cost in costs.items()}
    top = max((value for value in memory.values() if value is not None), default=1.0)
    for model, cost in reversed([*costs.items()]):
        used = memory[model]
        place = cost["forward_flops"] / 1e6, top if used is None else used
        panel.scatter(
            *place, s=52, label=TITLES[model], color=COLOUR_OF[model], marker=MARKERS[model],
            edgecolors="white", linewidths=0.8, zorder=3,
        )  # fmt: skip
        if used is None:
            panel.annotate(
                OOM, place, xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8,
                color=COLOUR_OF[model],
            )  # fmt: skip
    panel.set(xscale="log", yscale="log")
    panel.margins(0.12)
    for axis in (panel.xaxis, panel.yaxis):
        # plain numbers at 1, 2 and 5 times the powers of ten
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")

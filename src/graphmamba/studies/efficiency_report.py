"""The efficiency study as files, figures, and tables beside the paper's claims."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from graphmamba.data.catalog import CATALOG
from graphmamba.figures import new_figure
from graphmamba.studies.cost import OUT, Cost, LargestBatch
from graphmamba.studies.efficiency import (
    CLAIMS,
    FILE,
    FIRST_FIGURE,
    NAMES,
    OURS,
    PAPER_BATCH,
    SIZINGS,
    TITLES,
    Cell,
    Findings,
    Row,
)
from graphmamba.studies.report import (
    COLOURS,
    INK,
    QUIET,
    save_figure,
    table,
    write_csv,
    write_json,
)


def write_findings(findings: Findings, folder: Path) -> None:
    """Write CSV, JSON, PNG and SVG files of all rows that there are."""
    write_rows(findings, folder)
    if findings.of("fractions"):
        plot_fractions(findings, folder)
    if findings.of("models"):
        plot_models(findings, folder)


def write_rows(findings: Findings, folder: Path) -> None:
    """Write CSV and JSON files, which is quick enough to be done after each row."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, {**findings.content(), "claims": claims(findings)})
    write_csv(folder / "malnet.csv", [_cells(row) for row in findings.of("fractions")])
    write_csv(folder / "largest_batch.csv", [_cells(row) for row in findings.of("batches")])
    write_csv(folder / "models.csv", [_cells(row) for row in findings.of("models")])


def _cells(row: Row) -> dict[str, object]:
    """The columns of a row; where memory ran out they say so."""
    found = row.found
    if isinstance(found, LargestBatch):
        ended = "the search's limit" if found.is_limit else OUT
        columns = {"largest_batch": found.batch_size, "peak_bytes": found.peak_bytes}
        measured: dict[str, object] = {**columns, "ended_by": ended}
    else:
        measured = asdict(found) | {"bytes_per_graph": found.bytes_per_graph}
    return {
        **{name: getattr(row.cell, name) for name in NAMES[row.cell.figure]},
        **{name: OUT if value is None else value for name, value in measured.items()},
        "held_bytes": row.held_bytes,
        "source": row.source,
    }


def claims(findings: Findings) -> list[dict[str, object]]:
    """Set what the paper says is saved beside what was measured, for each way to size models."""
    costs = {
        (cell.benchmark, cell.sizing, cell.model): cost for cell, cost in findings.costs("models")
    }
    found: list[dict[str, object]] = []
    for claim in CLAIMS:
        for sizing in SIZINGS:
            ours = costs.get((claim.benchmark, sizing, OURS))
            baseline = costs.get((claim.benchmark, sizing, claim.baseline))
            if ours is None or baseline is None:
                continue
            here, there = ours.bytes_per_graph, baseline.bytes_per_graph
            found.append(
                {
                    "benchmark": claim.benchmark,
                    "baseline": claim.baseline,
                    "sizing": sizing,
                    "memory_saved": 1 - here / there if here and there else None,
                    "memory_saved_in_the_paper": claim.memory,
                    "flops_saved": 1 - ours.forward_flops / baseline.forward_flops,
                    # by our code of the baseline's own, and by the code of the paper
                    "flops_saved_of_original": 1 - ours.forward_flops / baseline.original_flops,
                    "flops_saved_by_original": 1 - ours.original_flops / baseline.original_flops,
                    "flops_saved_in_the_paper": claim.flops,
                }
            )
    return found


COLUMNS = ("parameters", "batch", "nodes", "MFLOP", "counted", "original", "MB", "ms")
"""The last five are for one graph; counted operations are those seen while the model ran, original
ones those of its authors' code."""
CLAIM_COLUMNS = {
    "memory": "memory_saved",
    "paper": "memory_saved_in_the_paper",
    "FLOPs": "flops_saved",
    "of original": "flops_saved_of_original",
    "by original": "flops_saved_by_original",
    "paper ": "flops_saved_in_the_paper",
}
"""Headings of the claims, and what stands below them."""


def print_findings(
    findings: Findings, folder: Path, console: Console, missing: Sequence[Cell] = ()
) -> None:
    """Print what was measured beside what the paper says, and what is missing."""
    device, cap = findings.environment["device"], f"{findings.memory_cap / 1e9:.3g} GB"
    rows = [
        [f"{cell.fraction:g}", TITLES[cell.model], *_shown(cost)]
        for cell, cost in findings.costs("fractions")
    ]
    if rows:
        title = f"MalNet-Tiny, share of the nodes, on {device}, at most {cap}"
        console.print(table(title, ["share", "model", *COLUMNS], rows))
    rows = []
    for model, largest in _largest(findings):
        peak = "" if largest.peak_bytes is None else f"{largest.peak_bytes / 1e9:.2f}"
        ended = "limit" if largest.is_limit else OUT
        rows.append([TITLES[model], ended, f"{largest.batch_size}", peak])
    if rows:
        title = f"Largest batch of whole MalNet-Tiny graphs in {cap} (paper: Graph-Mamba "
        columns = ["model", "ended by", "batch", "peak GB"]
        console.print(table(f"{title}{PAPER_BATCH})", columns, rows))
    costs = findings.costs("models")
    for sizing, means in SIZINGS.items() if costs else ():
        rows = [
            [CATALOG[cell.benchmark].title, TITLES[cell.model], *_shown(cost)]
            for cell, cost in costs
            if cell.sizing == sizing
        ]
        console.print(table(f"Models {means}, on {device}", ["set", "model", *COLUMNS], rows))
    if costs:
        title = (
            "Memory and operations saved by Graph-Mamba against a baseline, here and in the paper"
        )
        columns = ["set and baseline", "sizing", *(heading.strip() for heading in CLAIM_COLUMNS)]
        console.print(table(title, columns, map(_claim_cells, claims(findings))))
    _print_notes(findings, console)
    # a path may well look like markup
    console.print(Text(f"Files: {folder}"))
    if missing:
        listed = "; ".join(str(cell) for cell in missing)
        console.print(
            f"{len(missing)} measurements are missing; the same command resumes: {listed}"
        )


def _shown(cost: Cost) -> list[str]:
    measured = (
        (cost.counted_flops, 1e6, ",.1f"),
        (cost.original_flops, 1e6, ",.1f"),
        (cost.bytes_per_graph, 1e6, ",.2f"),
        (cost.ms, 1, ",.3f"),
    )
    return [
        f"{cost.parameters:,}",
        f"{cost.batch_size}",
        f"{cost.nodes:,.0f}",
        f"{cost.forward_flops / 1e6:,.1f}",
        *(OUT if value is None else f"{value / unit:{form}}" for value, unit, form in measured),
    ]


def _largest(findings: Findings) -> list[tuple[str, LargestBatch]]:
    rows = ((row.cell.model, row.found) for row in findings.of("batches"))
    return [(model, found) for model, found in rows if isinstance(found, LargestBatch)]


def _claim_cells(claim: dict[str, object]) -> list[str]:
    values = [claim[name] for name in CLAIM_COLUMNS.values()]
    return [
        f"{CATALOG[str(claim['benchmark'])].title}, {TITLES[str(claim['baseline'])]}",
        str(claim["sizing"]),
        *(f"{100 * value:.0f} %" if isinstance(value, float) else OUT for value in values),
    ]


def _print_notes(findings: Findings, console: Console) -> None:
    rows = findings.rows.values()
    console.print(
        "Graphs: " + ("; ".join(sorted({row.source for row in rows})) or "none was measured")
    )
    costs = [row.found for row in rows if isinstance(row.found, Cost)]
    if costs:
        console.print(
            "Operations: 'original' counts the published code of a model, padding included. Saved: "
            "'of original' by our Graph-Mamba against the original baseline, 'by original' with "
            "the original code of both"
        )
        console.print("Memory: " + ", ".join(sorted({cost.memory_measure for cost in costs})))
        held = max(row.held_bytes for row in rows)
        if held:
            console.print(
                f"Allocated before a measurement and not counted: at most {held / 1e6:.1f} MB"
            )
        console.print(
            "Time: steps without CUDA graphs; for small batches, the time of kernel launches"
        )


QUANTITIES: tuple[tuple[str, Callable[[Cost], float | None]], ...] = (
    ("operations of a forward pass, GFLOP per graph", lambda cost: cost.forward_flops / 1e9),
    (
        "peak memory of a step, MB per graph",
        lambda cost: None if cost.bytes_per_graph is None else cost.bytes_per_graph / 1e6,
    ),
    ("time of a step without CUDA graphs, ms per graph", lambda cost: cost.ms),
)
COLOUR_OF = dict(zip(TITLES, COLOURS, strict=True))
MARKERS = dict(zip(TITLES, "osD^vX", strict=True))
NOTHING_FITS, NOT_YET = f"{OUT}: no step fits", "not measured yet"


def plot_fractions(findings: Findings, folder: Path) -> None:
    """Draw the first figure: what a graph takes against the share of its nodes."""
    costs = findings.costs("fractions")
    figure = new_figure(13.5, 4.0)
    panels = figure.subplots(1, 4, width_ratios=(3, 3, 3, 1.6))
    for panel, (title, read) in zip(panels, QUANTITIES, strict=False):
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
        if not top:
            _say(panel, NOTHING_FITS)
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


def _say(panel: Any, text: str) -> None:
    """Say why a panel shows nothing; then its heights mean nothing."""
    panel.set_yticks([])
    panel.annotate(
        text, (0.5, 0.75), xycoords="axes fraction", ha="center", fontsize=9, color=QUIET
    )


def _draw_largest(panel: Any, findings: Findings) -> None:
    """Draw a bar for each model."""
    panel.set_title("largest batch", fontsize=9, loc="left", color=INK)
    found = _largest(findings)
    if not found:
        panel.set_xticks([])
        _say(panel, NOT_YET)
        return
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
    # a study that was cut off has panels with fewer models
    found = (panel.get_legend_handles_labels() for panel in panels.flat)
    handles, labels = max(found, key=lambda each: len(each[1]))
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=len(TITLES),
                  frameon=False, fontsize=9)  # fmt: skip
    save_figure(figure, folder / "models")


def _draw_trade(panel: Any, costs: list[tuple[str, Cost]]) -> None:
    """Draw a point for each model, ours last, where no other can hide it."""
    from matplotlib.ticker import LogLocator, NullLocator

    known = [cost.bytes_per_graph / 1e6 for _, cost in costs if cost.bytes_per_graph is not None]
    top = max(known, default=1.0)
    for model, cost in reversed(costs):
        place = top if cost.bytes_per_graph is None else cost.bytes_per_graph / 1e6
        panel.scatter(
            cost.forward_flops / 1e6, place, s=52, label=TITLES[model], color=COLOUR_OF[model],
            marker=MARKERS[model], edgecolors="white", linewidths=0.8, zorder=3,
        )  # fmt: skip
        if cost.bytes_per_graph is None and known:
            panel.annotate(
                OUT, (cost.forward_flops / 1e6, place), xytext=(0, 6), textcoords="offset points",
                ha="center", fontsize=8, color=COLOUR_OF[model],
            )  # fmt: skip
    # plain numbers at 1, 2 and 5 times the powers of ten
    panel.set(xscale="log", yscale="log")
    panel.margins(0.12)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    if not known:
        _say(panel, NOTHING_FITS if costs else NOT_YET)

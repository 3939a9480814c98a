"""The two figures of the efficiency study (needs the extra `plots`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphmamba.data.catalog import CATALOG
from graphmamba.figures import new_figure
from graphmamba.study.cost import OUT, Cost
from graphmamba.study.efficiency_findings import Findings, FractionRow
from graphmamba.study.efficiency_plan import FIRST_FIGURE, PAPER_BATCH, SIZINGS, TITLES
from graphmamba.study.figure import COLOURS, INK, QUIET, log_axes, save_figure

Quantity = tuple[str, Callable[[Cost], float | None]]

QUANTITIES: tuple[Quantity, ...] = (
    ("operations of a forward pass, GFLOP a graph", lambda cost: cost.forward_flops / 1e9),
    (
        "peak memory of a step, MB a graph",
        lambda cost: None if cost.bytes_per_graph is None else cost.bytes_per_graph / 1e6,
    ),
    ("time of a step, launches one by one, ms a graph", lambda cost: cost.ms),
)
COLOUR_OF = dict(zip(TITLES, COLOURS, strict=True))
MARKERS = dict(zip(TITLES, "osD^vX", strict=True))
NOTHING_FITS, NOT_YET = f"{OUT}: no step fits", "not measured yet"


def plot_fractions(findings: Findings, folder: Path) -> None:
    """Draw the first figure: what a graph takes against the share of its nodes."""
    figure = new_figure(13.5, 4.0)
    panels = figure.subplots(1, 4, width_ratios=(3, 3, 3, 1.6))
    for panel, quantity in zip(panels, QUANTITIES, strict=False):
        _draw_quantity(panel, findings.fractions, quantity)
    _draw_largest(panels[3], findings)
    first = findings.fractions[0]
    figure.suptitle(
        f"MalNet-Tiny with a share of the nodes, batches of {first.cost.batch_size}, "
        f"{findings.environment['device']}, at most {findings.memory_cap / 1e9:.3g} GB",
        fontsize=11, x=0.01, ha="left", color=INK,
    )  # fmt: skip
    save_figure(figure, folder / "malnet")


def _draw_quantity(panel: Any, rows: tuple[FractionRow, ...], quantity: Quantity) -> None:
    title, read = quantity
    top = 0.0
    for model in FIRST_FIGURE:
        points = [(row.fraction, read(row.cost)) for row in rows if row.model == model]
        drawn = [(share, value) for share, value in points if value is not None]
        shares, values = [share for share, _ in drawn], [value for _, value in drawn]
        style = {"color": COLOUR_OF[model], "marker": MARKERS[model], "markersize": 4.5}
        panel.plot(shares, values, **style)
        if drawn:
            _name_line(panel, model, *drawn[-1], is_cut=len(drawn) < len(points))
        top = max([top, *values])
    if not top:
        _say(panel, NOTHING_FITS)
    panel.set_title(title, fontsize=9, loc="left", color=INK)
    panel.set(xlabel="share of the nodes", xlim=(0, 1.02 * max(row.fraction for row in rows)))
    # room for the name of the highest line
    panel.set_ylim(0, 1.12 * top or 1)


def _say(panel: Any, text: str) -> None:
    """Say why a panel shows nothing; then its heights mean nothing."""
    panel.set_yticks([])
    panel.annotate(
        text, (0.5, 0.75), xycoords="axes fraction", ha="center", fontsize=9, color=QUIET
    )


def _name_line(panel: Any, model: str, share: float, value: float, *, is_cut: bool) -> None:
    """Write a line's name at its end, and where memory ran out say so."""
    text = f"{TITLES[model]}, then {OUT}" if is_cut else TITLES[model]
    panel.annotate(
        text, (share, value), xytext=(-4, 5), textcoords="offset points", ha="right",
        fontsize=8.5, color=COLOUR_OF[model],
    )  # fmt: skip


def _draw_largest(panel: Any, findings: Findings) -> None:
    """Draw a bar for each model."""
    panel.set_title("largest batch", fontsize=9, loc="left", color=INK)
    if not findings.batches:
        panel.set_xticks([])
        _say(panel, NOT_YET)
        return
    for place, row in enumerate(findings.batches):
        size = row.largest.batch_size
        panel.bar(place, size, width=0.6, color=COLOUR_OF[row.model])
        label = f"{size}+" if row.largest.is_limit else str(size)
        panel.annotate(
            label, (place, max(size, 1)), xytext=(0, 3), textcoords="offset points", ha="center",
            fontsize=9, color=INK,
        )  # fmt: skip
    panel.axhline(PAPER_BATCH, color=QUIET, linewidth=1, linestyle="--")
    # below the bars, where no bar can hide it
    panel.set_xlabel(f"-- the paper's Graph-Mamba, {PAPER_BATCH}", fontsize=8, color=QUIET)
    panel.set_xlim(-0.6, len(findings.batches) - 0.4)
    panel.set_xticks(range(len(findings.batches)), [TITLES[row.model] for row in findings.batches])
    panel.tick_params(axis="x", labelsize=8, length=0)
    panel.set_yscale("log", base=2)
    panel.set_ylim(1, 2 * max([PAPER_BATCH, *(row.largest.batch_size for row in findings.batches)]))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def plot_mixers(findings: Findings, folder: Path) -> None:
    """Draw the second figure: operations against memory of each model on each set."""
    sets = list(dict.fromkeys(row.benchmark for row in findings.mixers))
    figure = new_figure(3.3 * len(sets), 6.4)
    panels = figure.subplots(2, len(sets), squeeze=False)
    for line, (sizing, means) in enumerate(SIZINGS.items()):
        for panel, benchmark in zip(panels[line], sets, strict=True):
            own = [
                row for row in findings.mixers if (row.benchmark, row.sizing) == (benchmark, sizing)
            ]
            _draw_trade(panel, [(row.model, row.cost) for row in own])
            panel.set_title(CATALOG[benchmark].title, fontsize=10, loc="left", color=INK)
        panels[line, 0].set_ylabel(f"{means}\npeak memory, MB a graph", fontsize=9)
    for panel in panels[1]:
        panel.set_xlabel("forward pass, MFLOP a graph", fontsize=9)
    # a study that was cut off has panels with fewer models
    handles, labels = max(
        (panel.get_legend_handles_labels() for panel in panels.flat),
        key=lambda found: len(found[1]),
    )
    figure.legend(
        handles[::-1],
        labels[::-1],
        loc="outside upper center",
        ncols=len(TITLES),
        frameon=False,
        fontsize=9,
    )
    save_figure(figure, folder / "mixers")


def _draw_trade(panel: Any, costs: list[tuple[str, Cost]]) -> None:
    """Draw a point for each model, ours last, where no other can hide it."""
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
    log_axes(panel)
    if not known:
        _say(panel, NOTHING_FITS if costs else NOT_YET)

"""A figure of a data set: sizes, degrees, labels, diameters (needs the extra `plots`)."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.summary import Summary
from graphmamba.figures import new_figure, write_figure

FIRST, SECOND = "#4477aa", "#ee8866"
"""Colours that also people who confuse red and green can tell apart."""
RULE = "#e6e6e6"
LOG_SIZES, LOG_COUNTS = 10, 100
"""Times that the largest number is the smallest where its axis becomes logarithmic."""
MOST_NAMES = 22
"""Classes or targets that are named in a panel."""
LONGEST = 24
"""Letters of a name."""
BINS = 60


def plot_summary(summary: Summary, title: str, path: Path) -> None:
    """Draw the set into a file; its ending says which format."""
    write_figure(draw_summary(summary, title), path)


def draw_summary(summary: Summary, title: str) -> Any:
    """Make a figure with a panel for each thing that the set has."""
    figure = new_figure(10.0, 7.0)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    panels = list(figure.subplots(2, 2).flat)
    for panel in panels:
        _tidy(panel)
    _draw_sizes(panels.pop(0), summary)
    _draw_degrees(panels.pop(0), summary.degrees)
    if summary.labels:
        _draw_labels(panels.pop(0), summary.labels)
    elif len(summary.values) == 1:
        ((name, values),) = summary.values.items()
        _draw_target(panels.pop(0), name, values)
    elif summary.values:
        _draw_targets(panels.pop(0), summary)
    elif summary.pairs is not None:
        _draw_counts(panels.pop(0), "labelled pairs of a graph", summary.pairs)
    if measured := len(summary.diameters):
        bounds = "" if summary.has_exact_diameters else " (lower bounds)"
        label = f"diameter of a graph, {measured:,} measured{bounds}"
        _draw_counts(panels.pop(0), label, summary.diameters)
    for panel in panels:
        panel.remove()
    return figure


def _draw_sizes(panel: Any, summary: Summary) -> None:
    panel.set_title("size of a graph", loc="left", fontsize=10)
    panel.set_ylabel("graphs", fontsize=9)
    # a logarithmic axis has no place for graphs without edges
    both = torch.cat([summary.nodes, summary.edges]).clamp_min(1)
    span = float(both.max() / both.min())
    for name, sizes, colour in (
        ("nodes", summary.nodes, FIRST),
        ("directed edges", summary.edges, SECOND),
    ):
        shown = sizes.clamp_min(1) if span >= LOG_SIZES else sizes
        bins = whole_bins(shown, is_log=span >= LOG_SIZES)
        panel.hist(shown.numpy(), bins, color=colour, alpha=0.35)
        panel.hist(shown.numpy(), bins, color=colour, histtype="step", label=name, linewidth=1.2)
    if span >= LOG_SIZES:
        # over many powers of ten the numbers between them no longer fit
        _log_axis(panel, "x", subs=(1, 2, 5) if math.log10(span) < 2.6 else (1,))  # noqa: PLR2004
    # above the panel, where it covers nothing
    panel.legend(
        frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.99), borderpad=0
    )


def _draw_degrees(panel: Any, counts: Int[Tensor, " degrees"]) -> None:
    panel.set_title("outgoing edges of a node", loc="left", fontsize=10)
    panel.set_ylabel("nodes", fontsize=9)
    degrees = torch.arange(len(counts))
    heights = panel.hist(degrees, whole_bins(degrees), color=FIRST, weights=counts.numpy())[0]
    if heights.max() >= LOG_COUNTS * heights[heights > 0].min():
        _log_axis(panel, "y", subs=(1,))
        panel.set_ylim(bottom=0.7)


def _draw_labels(panel: Any, labels: dict[str, int]) -> None:
    most = set(sorted(labels, key=lambda name: -labels[name])[:MOST_NAMES])
    shown = {name: count for name, count in labels.items() if name in most}
    title = "labels" if len(shown) == len(labels) else f"labels, {len(shown)} of {len(labels):,}"
    panel.set_title(title, loc="left", fontsize=10)
    bars = panel.barh(range(len(shown)), list(shown.values()), color=FIRST)
    panel.bar_label(bars, [f"{count:,}" for count in shown.values()], padding=3, fontsize=7)
    panel.set_xlim(0, max(1, *shown.values()) * 1.16)
    _name_rows(panel, list(shown))


def _draw_target(panel: Any, name: str, values: Float[Tensor, " known"]) -> None:
    panel.set_title(f"target {_short(name)}", loc="left", fontsize=10)
    panel.set_ylabel("labels", fontsize=9)
    panel.xaxis.get_major_locator().set_params(integer=False)
    panel.xaxis.set_major_formatter("{x:g}")
    bins = min(BINS, math.ceil(2 * math.sqrt(max(len(values), 1))))
    panel.hist(values.double().numpy(), bins, color=FIRST)


def _draw_targets(panel: Any, summary: Summary) -> None:
    """Draw boxes on one scale, since targets have units of their own."""
    names, count = list(summary.values)[:MOST_NAMES], len(summary.values)
    title = "targets" if len(names) == count else f"targets, {len(names)} of {count:,}"
    panel.set_title(title, loc="left", fontsize=10)
    panel.set_xlabel("deviations from the mean (quartiles; lines from 5% to 95%)", fontsize=9)
    boxes = []
    for name in names:
        mean, deviation = summary.targets[name]
        boxes.append(((summary.values[name].double() - mean) / (deviation or 1.0)).numpy())
    panel.boxplot(
        boxes,
        positions=range(len(names)),
        orientation="horizontal",
        whis=(5, 95),
        showfliers=False,
        medianprops={"color": SECOND},
        manage_ticks=False,
    )
    _name_rows(panel, names)


def _draw_counts(panel: Any, title: str, counts: Int[Tensor, " graphs"]) -> None:
    panel.set_title(title, loc="left", fontsize=10)
    panel.set_ylabel("graphs", fontsize=9)
    panel.hist(counts.numpy(), whole_bins(counts), color=FIRST)


def _name_rows(panel: Any, names: list[str]) -> None:
    panel.set_yticks(range(len(names)), [_short(name) for name in names])
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(visible=False, axis="y")
    panel.grid(axis="x", color=RULE, linewidth=0.8)


def _short(name: str) -> str:
    """Leave out the middle of a long name, since names often differ at the end."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half + 1 :]}"


def _log_axis(panel: Any, which: str, subs: tuple[int, ...]) -> None:
    """Make an axis logarithmic, with plain numbers at these times the powers of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    panel.set(**{f"{which}scale": "log"})
    axis = panel.xaxis if which == "x" else panel.yaxis
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,.0f}")


def _tidy(panel: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(7, steps=(1, 2, 5, 10), integer=True, min_n_ticks=1))
        axis.set_major_formatter("{x:,.0f}")
    panel.grid(axis="y", color=RULE, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)


def whole_bins(
    counts: Int[Tensor, " counts"], *, is_log: bool = False
) -> Float[np.ndarray, " ends"]:
    """Ends of at most `BINS` bins of whole numbers, equally wide, or on a logarithmic axis."""
    low, high = int(counts.min()), int(counts.max())
    if is_log:
        return np.unique(np.geomspace(low, high + 1, BINS + 1).round()) - 0.5
    step = math.ceil((high - low + 1) / BINS)
    return np.arange(low, high + 1 + step, step) - 0.5

"""A figure of a data set: sizes, degrees, labels, diameters (needs the extra `plots`)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.summary import Summary
from graphmamba.figures import new_figure, write_figure

FIRST, SECOND = "#4477aa", "#ee8866"
"""Colours that are safe for colour-blind readers."""
LOG_SIZES, LOG_COUNTS = 10, 100
"""Ratio of largest to smallest value from which on an axis is logarithmic."""
MOST_NAMES = 22  # most classes or targets named in a panel
LONGEST = 24  # most characters of a name
BINS = 60


def plot_summary(summary: Summary, title: str, path: Path) -> None:
    """Write the figure to a file; its suffix is the format."""
    write_figure(draw_summary(summary, title), path)


def draw_summary(summary: Summary, title: str) -> Any:
    """Make a figure with one panel per statistic."""
    figure = new_figure(10.0, 7.0)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    panels = list(figure.subplots(2, 2).flat)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    _draw_sizes(panels.pop(0), summary)
    degrees = torch.arange(len(summary.degrees))
    _draw_counts(panels.pop(0), "outgoing edges of a node", "nodes", degrees, summary.degrees)
    if summary.labels:
        _draw_labels(panels.pop(0), summary.labels)
    elif summary.values:
        _draw_targets(panels.pop(0), summary)
    elif summary.pairs is not None:
        _draw_counts(panels.pop(0), "labelled pairs of a graph", "graphs", summary.pairs)
    if measured := len(summary.diameters):
        bounds = "" if summary.has_exact_diameters else " (lower bounds)"
        label = f"diameter of a graph, {measured:,} measured{bounds}"
        _draw_counts(panels.pop(0), label, "graphs", summary.diameters)
    for panel in panels:
        panel.remove()
    return figure


def _draw_sizes(panel: Any, summary: Summary) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    panel.set_title("size of a graph", loc="left", fontsize=10)
    panel.set_ylabel("graphs", fontsize=9)
    # a logarithmic axis has no place for graphs without edges
    nodes, edges = summary.nodes.clamp_min(1), summary.edges.clamp_min(1)
    both = torch.cat([nodes, edges])
    ratio = float(both.max() / both.min())
    is_log = ratio >= LOG_SIZES
    for name, sizes, colour in (("nodes", nodes, FIRST), ("directed edges", edges, SECOND)):
        bins = whole_bins(sizes, is_log=is_log)
        panel.hist(sizes.numpy(), bins, color=colour, alpha=0.5, label=name)
    if is_log:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if ratio < LOG_COUNTS else (1,)))
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    # above the panel, where it covers nothing
    panel.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.99))


def _draw_counts(
    panel: Any,
    title: str,
    counted: str,
    counts: Int[Tensor, " counts"],
    weights: Int[Tensor, " counts"] | None = None,
) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_title(title, loc="left", fontsize=10)
    panel.set_ylabel(counted, fontsize=9)
    times = None if weights is None else weights.numpy()
    heights = panel.hist(counts.numpy(), whole_bins(counts), weights=times, color=FIRST)[0]
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if weights is not None and heights.max() >= LOG_COUNTS * heights[heights > 0].min():
        panel.set_yscale("log")


def _draw_labels(panel: Any, labels: dict[str, int]) -> None:
    most = set(sorted(labels, key=lambda name: -labels[name])[:MOST_NAMES])
    shown = {name: count for name, count in labels.items() if name in most}
    panel.set_title(_part_of("labels", shown, labels), loc="left", fontsize=10)
    bars = panel.barh(range(len(shown)), list(shown.values()), color=FIRST)
    panel.bar_label(bars, [f"{count:,}" for count in shown.values()], padding=3, fontsize=7)
    panel.margins(x=0.16)
    _name_rows(panel, list(shown))


def _draw_targets(panel: Any, summary: Summary) -> None:
    """Box plots of standardised targets, since their units differ."""
    names = list(summary.values)[:MOST_NAMES]
    panel.set_title(_part_of("targets", names, summary.values), loc="left", fontsize=10)
    panel.set_xlabel("deviations from the mean (quartiles; lines from 5% to 95%)", fontsize=9)
    boxes = []
    for name in names:
        mean, deviation = summary.targets[name]
        boxes.append(((summary.values[name].double() - mean) / (deviation or 1.0)).numpy())
    style = {"whis": (5, 95), "showfliers": False, "manage_ticks": False}
    panel.boxplot(boxes, positions=range(len(names)), orientation="horizontal", **style)
    _name_rows(panel, names)


def _part_of(what: str, shown: Any, every: Any) -> str:
    return what if len(shown) == len(every) else f"{what}, {len(shown)} of {len(every):,}"


def _name_rows(panel: Any, names: list[str]) -> None:
    # of a long name the middle is left out, since names often differ at the end
    half = LONGEST // 2
    short = [n if len(n) <= LONGEST else f"{n[:half]}…{n[-half + 1 :]}" for n in names]
    panel.set_yticks(range(len(names)), short)
    panel.set_ylim(len(names) - 0.4, -0.6)


def whole_bins(
    counts: Int[Tensor, " counts"], *, is_log: bool = False
) -> Float[np.ndarray, " ends"]:
    """Ends of at most `BINS` bins of whole numbers, equally wide, or on a logarithmic axis."""
    low, high = int(counts.min()), int(counts.max())
    if is_log:
        return np.unique(np.geomspace(low, high + 1, BINS + 1).round()) - 0.5
    step = -(-(high - low + 1) // BINS)
    return np.arange(low, high + 1 + step, step) - 0.5

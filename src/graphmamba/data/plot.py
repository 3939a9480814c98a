"""A picture of a data set: sizes, degrees, labels, diameters (needs the extra `plots`)."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.summary import Summary
from graphmamba.figures import new_figure, write_figure

FIRST, SECOND = "#4477aa", "#ee8866"
"""Colours that also people who confuse red and green can tell apart."""
RULE = "#e6e6e6"
SPAN = 10
"""Times that the largest number is the smallest where the axis of sizes becomes logarithmic."""
STEEP = 100
"""Times that the largest count is the smallest where their axis becomes logarithmic."""
DECADES = 2.6
"""Powers of ten that a logarithmic axis spans where numbers between them no longer fit."""
FEW = 20
"""Bars that stand apart."""
MOST_NAMES = 22
"""Classes or targets that are named in a panel."""
LONGEST = 24
"""Letters of a name."""
BINS = 60
"""About how many there are at most."""


def plot_summary(summary: Summary, title: str, path: Path) -> None:
    """Draw the set into a file; its ending says which format."""
    write_figure(draw_summary(summary, title), path)


def draw_summary(summary: Summary, title: str) -> Any:
    """Make a figure with a panel for each thing that the set has."""
    figure = new_figure(10.0, 7.0)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    draws = list(_panels(summary))
    panels = figure.subplots(2, 2).flat
    for panel in panels[len(draws) :]:
        panel.remove()
    for panel, draw in zip(panels, draws, strict=False):
        _tidy(panel)
        draw(panel)
    return figure


def _panels(summary: Summary) -> Iterator[Callable[[Any], None]]:
    yield partial(_draw_sizes, summary=summary)
    yield partial(_draw_degrees, counts=summary.degrees)
    if summary.labels:
        yield partial(_draw_labels, labels=summary.labels)
    elif len(summary.values) == 1:
        ((name, values),) = summary.values.items()
        yield partial(_draw_target, name=name, values=values)
    elif summary.values:
        yield partial(_draw_targets, summary=summary)
    elif summary.pairs is not None:
        yield partial(_draw_counts, title="labelled pairs of a graph", counts=summary.pairs)
    if measured := len(summary.diameters):
        bounds = "" if summary.has_exact_diameters else " (lower bounds)"
        title = f"diameter of a graph, {measured:,} measured{bounds}"
        yield partial(_draw_counts, title=title, counts=summary.diameters)


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
        shown = sizes.clamp_min(1) if span >= SPAN else sizes
        is_wide = span >= SPAN and bool(shown.max() >= SPAN * shown.min())
        bins = log_bins(shown) if is_wide else even_bins(shown)
        panel.hist(shown.numpy(), bins, color=colour, alpha=0.35)
        panel.hist(shown.numpy(), bins, color=colour, histtype="step", label=name, linewidth=1.2)
    if span >= SPAN:
        _log_axis(panel, "x", subs=(1, 2, 5) if math.log10(span) < DECADES else (1,))
    # above the panel, where it covers nothing
    panel.legend(
        frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.99), borderpad=0
    )


def _draw_degrees(panel: Any, counts: Int[Tensor, " degrees"]) -> None:
    panel.set_title("outgoing edges of a node", loc="left", fontsize=10)
    panel.set_ylabel("nodes", fontsize=9)
    degrees = torch.arange(len(counts))
    heights = _draw_bars(panel, degrees, weights=counts.numpy())
    low, high = heights[heights > 0].min(), heights.max()
    if high >= STEEP * low:
        _log_axis(panel, "y", subs=(1,))
        panel.set_ylim(bottom=0.7)


def _draw_labels(panel: Any, labels: dict[str, int]) -> None:
    most = sorted(labels, key=lambda name: -labels[name])[:MOST_NAMES]
    names = [name for name in labels if name in set(most)]
    counts = [labels[name] for name in names]
    panel.set_title(_of_all("labels", len(names), len(labels)), loc="left", fontsize=10)
    bars = panel.barh(range(len(names)), counts, color=FIRST)
    panel.bar_label(bars, [f"{count:,}" for count in counts], padding=3, fontsize=7)
    panel.set_xlim(0, max(1, *counts) * 1.16)
    _name_rows(panel, names)


def _draw_target(panel: Any, name: str, values: Float[Tensor, " known"]) -> None:
    panel.set_title(f"target {_short(name)}", loc="left", fontsize=10)
    panel.set_ylabel("labels", fontsize=9)
    panel.xaxis.get_major_locator().set_params(integer=False)
    panel.xaxis.set_major_formatter("{x:g}")
    bins = min(BINS, math.ceil(2 * math.sqrt(max(len(values), 1))))
    panel.hist(values.double().numpy(), bins, color=FIRST, rwidth=_share(bins))


def _draw_targets(panel: Any, summary: Summary) -> None:
    """Draw boxes on one scale, since targets have units of their own."""
    names = list(summary.values)[:MOST_NAMES]
    panel.set_title(_of_all("targets", len(names), len(summary.values)), loc="left", fontsize=10)
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
        patch_artist=True,
        boxprops={"facecolor": FIRST, "edgecolor": FIRST, "alpha": 0.5},
        whiskerprops={"color": FIRST},
        capprops={"color": FIRST},
        medianprops={"color": SECOND, "linewidth": 1.8},
        manage_ticks=False,
    )
    _name_rows(panel, names)


def _draw_counts(panel: Any, title: str, counts: Int[Tensor, " graphs"]) -> None:
    panel.set_title(title, loc="left", fontsize=10)
    panel.set_ylabel("graphs", fontsize=9)
    _draw_bars(panel, counts)


def _draw_bars(panel: Any, counts: Int[Tensor, " counts"], **options: Any) -> Any:
    """Draw a histogram of whole numbers and return its heights."""
    bins = even_bins(counts)
    share = _share(len(bins) - 1)
    return panel.hist(counts.numpy(), bins, color=FIRST, rwidth=share, **options)[0]


def _share(bars: int) -> float:
    """How much of its place a bar fills."""
    return 0.9 if bars <= FEW else 1.0


def _name_rows(panel: Any, names: list[str]) -> None:
    panel.set_yticks(range(len(names)), [_short(name) for name in names])
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(visible=False, axis="y")
    panel.grid(axis="x", color=RULE, linewidth=0.8)


def _of_all(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what}, {shown:,} of {total:,}"


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


def even_bins(counts: Int[Tensor, " counts"]) -> list[float]:
    """Ends of equal bins, each of which holds as many of the numbers that there may be."""
    low, high = int(counts.min()), int(counts.max())
    step = math.ceil((high - low + 1) / BINS)
    unit = _unit(counts)
    if step > 1 and unit <= 2 * step:
        step = math.ceil(step / unit) * unit
    return [low - 0.5 + step * place for place in range((high - low) // step + 2)]


def log_bins(counts: Int[Tensor, " counts"]) -> list[float]:
    """Ends of bins that are as wide on a logarithmic axis, as far as whole numbers allow.

    None is narrower than the one before, so that neighbours do not take turns in what they hold.

    Args:
        counts: Whole numbers from 1.
    """
    low, high = int(counts.min()), int(counts.max())
    growth = (high / low) ** (1 / BINS) - 1
    unit = _unit(counts) if _unit(counts) <= low else 1
    ends = [low - 0.5]
    while ends[-1] < high:
        ends.append(ends[-1] + unit * max(1, round(ends[-1] * growth / unit)))
    return ends


def _unit(counts: Int[Tensor, " counts"]) -> int:
    """What all differ by a multiple of, such as 2 where edges go both ways."""
    return math.gcd(*(counts - counts.min()).unique().tolist()) or 1

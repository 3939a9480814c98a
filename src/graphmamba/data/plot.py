"""A picture of a data set: sizes, degrees, labels, diameters (needs the extra `plots`)."""

from pathlib import Path
from typing import Any

import torch

from graphmamba.data.summary import Summary
from graphmamba.errors import UserError

BINS = 60


def plot_summary(summary: Summary, title: str, path: Path) -> None:
    """Draw four panels into a file; its ending says which format."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise UserError("plots need matplotlib: pip install 'graphmamba[plots]'") from missing
    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = figure.subplots(2, 2)
    figure.suptitle(title)
    _draw_sizes(panels[0, 0], summary)
    _draw_degrees(panels[0, 1], summary)
    _draw_labels(panels[1, 0], summary)
    _draw_diameters(panels[1, 1], summary)
    try:
        figure.savefig(path)
    except ValueError as mistake:
        raise UserError(f"plot must end in .png, .pdf or .svg, got '{path}'") from mistake


def _draw_sizes(panel: Any, summary: Summary) -> None:
    for name, sizes in (("nodes", summary.nodes), ("directed edges", summary.edges)):
        # equally wide on the logarithmic axis, which has no place for graphs without edges
        ends = torch.aminmax(sizes.clamp_min(1).double().log10())
        bins = torch.logspace(float(ends.min), float(ends.max) + 1e-3, BINS, dtype=torch.float64)
        panel.hist(sizes.clamp_min(1).numpy(), bins=bins.numpy(), histtype="step", label=name)
    panel.set(xlabel="in a graph", ylabel="graphs", xscale="log")
    panel.legend()


def _draw_degrees(panel: Any, summary: Summary) -> None:
    panel.bar(torch.arange(len(summary.degrees)).numpy(), summary.degrees.numpy(), width=1.0)
    panel.set(xlabel="outgoing edges", ylabel="nodes", yscale="log")


def _draw_labels(panel: Any, summary: Summary) -> None:
    panel.set(xlabel="label", ylabel="count")
    if summary.labels:
        panel.bar(list(summary.labels), list(summary.labels.values()))
    else:
        panel.text(0.5, 0.5, "labels are no classes", ha="center", transform=panel.transAxes)


def _draw_diameters(panel: Any, summary: Summary) -> None:
    panel.set(xlabel="diameter", ylabel=f"graphs, {len(summary.diameters)} measured")
    counts = summary.diameters.bincount()
    panel.bar(torch.arange(len(counts)).numpy(), counts.numpy(), width=1.0)

"""Plot the time of a training step from the records in `results/`.

    PYTHONPATH=src python benchmarks/step_plot.py --out docs/step

Published times are those of the layers alone, forward and backward, on another H200.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from graphmamba.data.catalog import CATALOG
from graphmamba.figures import new_figure
from graphmamba.studies.report import COLOURS, INK, QUIET, save_figure

RESULTS = Path(__file__).parent / "results"
LEAST = 0.3
"""Lower end of the logarithmic axis, in milliseconds."""


def main() -> None:
    """Read the record and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="path without ending")
    parser.add_argument("--record", type=Path, default=RESULTS / "step_h200.json")
    options = parser.parse_args()
    save_figure(draw(json.loads(options.record.read_text())), options.out, ("svg",))


def draw(record: dict[str, Any]) -> Any:
    """Plot the step of each data set, the published layers, and two target times."""
    captured = [one for one in record["times"] if one["kind"] == "captured"]
    figure = new_figure(8.5, 3.6)
    panel = figure.subplots()
    for place, one in enumerate(captured):
        name, ours = one["benchmark"], one["train_ms"]
        panel.bar(place, ours, 0.5, color=COLOURS[0])
        # at the foot of the bar, where no line crosses it
        panel.text(place, LEAST * 1.1, f"{ours:.2f}", ha="center", color="white", fontsize=8)
        published = record["published_layers_ms"].get(name)
        if published is not None:
            panel.plot(place, published, "D", color=COLOURS[1], markersize=6)
            panel.text(place, published * 1.2, f"{published:g}", ha="center", color=COLOURS[1],
                       fontsize=8)  # fmt: skip
        for value, style in zip(record["h200_targets_ms"][name], ("-", ":"), strict=True):
            panel.hlines(value, place - 0.38, place + 0.38, color=INK, linestyle=style)
    panel.set_yscale("log")
    panel.set_ylim(LEAST, 150)
    panel.set_yticks([0.5, 1, 2, 5, 10, 20, 50, 100])
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.minorticks_off()
    titles = [CATALOG[one["benchmark"]].title for one in captured]
    sizes = [f"{one['graphs']} graphs, {one['layers']} layers" for one in captured]
    labels = [f"{title}\n{size}" for title, size in zip(titles, sizes, strict=True)]
    panel.set_xticks(range(len(captured)), labels, fontsize=7.5)
    panel.set_title(
        "Whole training step on an H200, ms: bars; published layers alone: diamonds; "
        "set as must: —, as goal: ···",
        fontsize=9, loc="left", color=INK,
    )  # fmt: skip
    panel.set_ylabel("milliseconds", fontsize=8, color=QUIET)
    return figure


if __name__ == "__main__":
    main()

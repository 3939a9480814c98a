"""The ablation as files and as a table beside the paper's one run."""

from pathlib import Path
from typing import Any

from graphmamba.bench.tables import table
from graphmamba.data.catalog import CATALOG
from graphmamba.figures import new_figure
from graphmamba.show.units import metric_title
from graphmamba.study.ablation import Entry, Table
from graphmamba.study.ablation_rows import ROWS
from graphmamba.study.csv_file import write_csv
from graphmamba.study.figure import COLOURS, INK, QUIET, save_figure
from graphmamba.whole_files import write_json, write_text

OURS, PAPER = COLOURS[0], COLOURS[1]
COLUMNS = ("model", "seeds", "mean", "std", "lowest", "highest", "paper, 1 run")


def write_ablation(entries: Table, folder: Path) -> None:
    """Write CSV, JSON, Markdown, PNG and SVG files of the runs that are done."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_cells(entry) for entry in entries]
    write_csv(folder / "ablation.csv", rows)
    runs = [run.content() for entry in entries for run in entry.runs]
    write_json(folder / "ablation.json", {"rows": rows, "runs": runs})
    write_text(folder / "ablation.md", _markdown(entries))
    plot_ablation(entries, folder / "ablation")


def ablation_table(benchmark: str, entries: Table) -> Any:
    """Show mean, deviation and range over the seeds beside what the paper has."""
    own = [entry for entry in entries if entry.benchmark == benchmark]
    metric = metric_title(own[0].runs[0].metric) if own else ""
    title = f"{CATALOG[benchmark].title}, test {metric}"
    return table(title, COLUMNS, (_texts(entry) for entry in own))


def _texts(entry: Entry) -> list[str]:
    return [
        ROWS[entry.row].title,
        ",".join(str(run.seed) for run in entry.runs),
        f"{entry.mean:.4f}",
        "" if entry.deviation is None else f"{entry.deviation:.4f}",
        f"{min(entry.scores):.4f}",
        f"{max(entry.scores):.4f}",
        "" if entry.paper is None else f"{entry.paper:.4f}",
    ]


def _markdown(entries: Table) -> str:
    """The same tables one after the other, each data set by its own name."""
    head = ["data set", "metric", *COLUMNS]
    lines = [head, ["---"] * len(head)]
    for entry in entries:
        metric = metric_title(entry.runs[0].metric)
        lines.append([CATALOG[entry.benchmark].title, metric, *_texts(entry)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(entry: Entry) -> dict[str, object]:
    return {
        "benchmark": entry.benchmark,
        "row": entry.row,
        "metric": entry.runs[0].metric,
        "seeds": " ".join(str(run.seed) for run in entry.runs),
        "scores": " ".join(f"{score:.6f}" for score in entry.scores),
        "mean": entry.mean,
        "deviation": "" if entry.deviation is None else entry.deviation,
        "paper": "" if entry.paper is None else entry.paper,
        "parameters": entry.runs[0].parameters,
        "seconds": sum(run.seconds for run in entry.runs),
        "is_done": all(run.is_done for run in entry.runs),
    }


def plot_ablation(entries: Table, path: Path) -> None:
    """Draw a point for each run, a bar for their mean, a diamond for the paper's run."""
    sets = list(dict.fromkeys(entry.benchmark for entry in entries))
    figure = new_figure(1.6 + 4.2 * len(sets), 1.2 + 0.4 * len({entry.row for entry in entries}))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    names = [row for row in ROWS if any(entry.row == row for entry in entries)]
    for panel, benchmark in zip(panels, sets, strict=True):
        own = [entry for entry in entries if entry.benchmark == benchmark]
        _draw_set(panel, own, names)
    panels[0].set_yticks(range(len(names)), [ROWS[name].title for name in names])
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    handles = {text: mark for panel in panels for mark, text in _marks(panel)}
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5
    )
    save_figure(figure, path)


def _marks(panel: Any) -> list[tuple[Any, str]]:
    return list(zip(*panel.get_legend_handles_labels(), strict=True))


def _draw_set(panel: Any, entries: list[Entry], names: list[str]) -> None:
    for entry in entries:
        place = names.index(entry.row)
        panel.plot(
            entry.scores, [place] * len(entry.scores), "o", color=OURS, alpha=0.55, markersize=6,
            markeredgewidth=0, label="a run of ours",
        )  # fmt: skip
        panel.plot(
            [entry.mean], [place], "|", color=OURS, markersize=17, markeredgewidth=2.2,
            label="their mean",
        )  # fmt: skip
        if entry.paper is not None:
            panel.plot(
                [entry.paper], [place], "D", color=PAPER, markersize=5.5, label="the paper's run"
            )
    first = entries[0]
    panel.set_title(CATALOG[first.benchmark].title, fontsize=10, loc="left", color=INK)
    panel.set_xlabel(f"test {metric_title(first.runs[0].metric)}", fontsize=9, color=QUIET)

"""`graphmamba benchmarks`: the ten data sets, and how large each model on them is."""

import json as json_format
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import torch

from graphmamba.config import config_names, load_experiment
from graphmamba.data.catalog import CATALOG

MIXERS = {
    "graph-mamba": "Graph-Mamba",
    "gps-transformer": "Transformer",
    "gps-performer": "Performer",
    "gps-bigbird": "BigBird",
    "exphormer": "Exphormer",
}
MESSAGE_PASSING = {
    "gatedgcn": "GatedGCN",
    "gine": "GINE",
    "gin": "GIN",
    "gcn": "GCN",
    "gcn-plus": "GCN+",
}
TUNED = {
    "gps-transformer-tuned": "Transformer",
    "gatedgcn-tuned": "GatedGCN",
    "gine-tuned": "GINE",
    "gcn-tuned": "GCN",
}


def list_benchmarks(json: bool = False) -> None:
    """List the ten data sets with their metric, their sizes and the parameters of each model.

    Args:
        json: Print one JSON object with all shipped models instead of tables.
    """
    totals = parameter_totals()
    if json:
        listed = [
            {"name": name, **asdict(benchmark), "graphs": benchmark.graphs, "models": totals[name]}
            for name, benchmark in CATALOG.items()
        ]
        json_format.dump({"benchmarks": listed}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print_tables(totals)


def parameter_totals() -> dict[str, dict[str, int]]:
    """Parameters of every model in the package, by data set and model."""
    totals: dict[str, dict[str, int]] = {name: {} for name in CATALOG}
    for full_name in config_names():
        name, _, model = full_name.partition("/")
        # shapes are enough to count, and a device without memory gives just those
        with torch.device("meta"):
            built = load_experiment(full_name).build()
        totals[name][model] = sum(parameter.numel() for parameter in built.parameters())
    return totals


def _print_tables(totals: dict[str, dict[str, int]]) -> None:
    from rich.console import Console

    console = Console()
    console.print(_table("Data sets", ["metric", "task", "graphs", "nodes", "edges"], _set_rows()))
    for title, models in (
        ("Parameters, with global exchange", MIXERS),
        ("Parameters, message passing alone", MESSAGE_PASSING),
        ('Parameters, as tuned in "Where did the gap go?"', TUNED),
    ):
        rows = ([name, *_counts(totals[name], models)] for name in CATALOG)
        console.print(_table(title, [*models.values()], (row for row in rows if any(row[1:]))))


def _set_rows() -> Iterable[list[str]]:
    for name, benchmark in CATALOG.items():
        yield [
            name,
            benchmark.task.metric.replace("_", " "),
            benchmark.task.level,
            f"{benchmark.graphs:,}",
            f"{benchmark.mean_nodes:,.1f}",
            f"{benchmark.mean_edges:,.1f}",
        ]


def _counts(totals: dict[str, int], models: Iterable[str]) -> list[str]:
    return [f"{totals[model]:,}" if model in totals else "" for model in models]


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> object:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("set")
    for column in columns:
        table.add_column(column, justify="left" if column in {"metric", "task"} else "right")
    for row in rows:
        table.add_row(*row)
    return table

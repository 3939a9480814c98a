"""`graphmamba benchmarks`: the ten data sets, and how large each model on them is."""

import json as json_format
import sys
from dataclasses import asdict

from graphmamba.data.catalog import CATALOG
from graphmamba.training.experiment import config_names, load_experiment
from graphmamba.training.progress import metric_title

GLOBAL_MODELS = {
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
FAMILIES = {
    "Parameters, with a global model": GLOBAL_MODELS,
    "Parameters, message passing alone": MESSAGE_PASSING,
    'Parameters, as tuned in "Where did the gap go?"': TUNED,
}
"""Models that have a column, by the title of their table."""


def list_benchmarks(json: bool = False) -> None:
    """List the ten benchmark data sets: metric, sizes and parameters of each model.

    Args:
        json: Print JSON, with all presets, instead of tables.
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
        outline = load_experiment(full_name).outline()
        totals[name][model] = sum(parameter.numel() for parameter in outline.parameters())
    return totals


def _print_tables(totals: dict[str, dict[str, int]]) -> None:
    from graphmamba.studies.report import page, table

    console = page()
    columns = ["set", "metric", "task", "graphs", "nodes", "edges"]
    rows = [
        [
            name,
            metric_title(benchmark.task.metric),
            benchmark.task.level,
            f"{benchmark.graphs:,}",
            f"{benchmark.mean_nodes:,.1f}",
            f"{benchmark.mean_edges:,.1f}",
        ]
        for name, benchmark in CATALOG.items()
    ]
    console.print(table("Data sets", columns, rows, words=3))
    for title, models in FAMILIES.items():
        rows = [
            [name, *(f"{own[model]:,}" if model in own else "" for model in models)]
            for name, own in totals.items()
        ]
        kept = [row for row in rows if any(row[1:])]
        console.print(table(title, ["set", *models.values()], kept, words=1))
    listed = {model for models in FAMILIES.values() for model in models}
    rows = [
        [name, model, f"{count:,}"]
        for name, own in totals.items()
        for model, count in own.items()
        if model not in listed
    ]
    console.print(table("Parameters, all other models", ["set", "model", "parameters"], rows))

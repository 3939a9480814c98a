"""`graphmamba benchmarks`: the ten data sets, and the size of each model."""

import json as json_format
import sys
from dataclasses import asdict

from graphmamba.data.catalog import CATALOG
from graphmamba.training.experiment import config_names, load_experiment
from graphmamba.training.metrics import metric_title


def list_benchmarks(json: bool = False) -> None:
    """List the ten benchmark data sets: metric, sizes and parameters of each model.

    Args:
        json: Print JSON instead of tables.
    """
    totals = parameter_totals()
    if json:
        listed = [
            {"name": name, **asdict(benchmark), "graphs": benchmark.graphs, "models": totals[name]}
            for name, benchmark in CATALOG.items()
        ]
        json_format.dump({"benchmarks": listed}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    from graphmamba.studies.report import page, table

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
    console = page()
    console.print(table("Data sets", columns, rows, words=3))
    for name, models in totals.items():
        sizes = [[model, f"{count:,}"] for model, count in models.items()]
        console.print(table(f"Models of {name}", ["preset", "parameters"], sizes, words=1))


def parameter_totals() -> dict[str, dict[str, int]]:
    """Parameters of every model in the package, by data set and model."""
    totals: dict[str, dict[str, int]] = {name: {} for name in CATALOG}
    for full_name in config_names():
        name, _, model = full_name.partition("/")
        outline = load_experiment(full_name).outline()
        totals[name][model] = sum(parameter.numel() for parameter in outline.parameters())
    return totals

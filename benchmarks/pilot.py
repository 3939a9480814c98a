"""Train recipes on a part of a set, to see what a model learns before a GPU is spent on it.

    PYTHONPATH=src python benchmarks/pilot.py LIST.jsonl --data_dir FOLDER --out FILE.json

Each line of LIST is one recipe; `name` is a config of the package or a YAML file:

    {"label": "GCN+", "name": "peptides-func/gcn-plus", "overrides": {"train.epochs": 15}}

All train on the same graphs, drawn by a seed, and are scored on the same validation graphs. Few
graphs tell how fast a recipe learns, and little about how far it comes with all of them.
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from graphmamba.checks import check_least
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.environment import describe, resolve_device
from graphmamba.studies.report import table, write_json
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import open_data
from graphmamba.training.metrics import LOWER_IS_BETTER

RESULTS = Path(__file__).parent / "results"
LEFT_OUT = len(SPLITS)
"""Part of graphs that nobody sees."""


def main() -> None:
    """Train, print the table, write the JSON after each recipe."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("list", type=Path, help="JSON, one recipe a line")
    parser.add_argument("--train", type=int, default=800, help="graphs to learn from")
    parser.add_argument("--validation", type=int, default=300, help="graphs to score")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data_dir", type=Path, help="where data sets are kept")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=RESULTS / "pilot.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()
    check_least("--train", options.train, 1)
    check_least("--validation", options.validation, 1)

    graphs = (options.train, options.validation)
    content: dict[str, Any] = {
        "environment": describe(resolve_device(options.device), options.commit),
        "graphs": graphs,
        "seed": options.seed,
        "rows": [],
    }
    lines = [line for line in options.list.read_text(encoding="utf-8").splitlines() if line.strip()]
    for row in pilots(
        map(json.loads, lines), graphs, options.seed, options.data_dir, options.device
    ):
        content["rows"].append(row)
        write_json(options.out, content)
    texts = [_texts(row) for row in content["rows"]]
    columns = ["recipe", "parameters", "first loss", "last loss", "validation"]
    Console().print(table(f"{graphs[0]} and {graphs[1]} graphs", columns, texts))


def pilots(
    lines: Iterator[dict[str, Any]],
    graphs: tuple[int, int],
    seed: int,
    data_dir: Path | None,
    device: str,
) -> Iterator[dict[str, Any]]:
    """Train one recipe after the other."""
    for line in lines:
        experiment = load_experiment(line["name"], line.get("overrides"))
        experiment, store = open_data(experiment, data_dir)
        options = RunOptions.of({"seed": seed, "device": device}, "options")
        with tempfile.TemporaryDirectory() as folder:
            result = fit(
                experiment,
                some_of(store, graphs, seed),
                options,
                Path(folder) / "run",
                progress=False,
            )
            if result.stop_reason in ("signal", "interrupt"):
                return
            with (result.run_dir / "metrics.csv").open(newline="", encoding="utf-8") as file:
                epochs = list(csv.DictReader(file))
        yield {
            **line,
            "parameters": result.parameters,
            "metric": result.metric,
            "train_loss": [float(epoch["train_loss"]) for epoch in epochs],
            "validation": [float(epoch[f"validation_{result.metric}"]) for epoch in epochs],
        }


def some_of(store: GraphStore, graphs: tuple[int, int], seed: int) -> GraphStore:
    """Leave the first graphs of training and validation in a random order, and one of the test."""
    assert store.split is not None
    generator = torch.Generator().manual_seed(seed)
    split = torch.full_like(store.split, LEFT_OUT)
    for (name, part), count in zip(SPLITS.items(), (*graphs, 1), strict=True):
        ids = store.split_ids(name)
        split[ids[torch.randperm(len(ids), generator=generator)[:count]]] = part
    return GraphStore.from_tables(store.tables, split, store.source)


def _texts(row: dict[str, Any]) -> list[str]:
    losses = [f"{row['train_loss'][place]:.4f}" for place in (0, -1)]
    best = min if row["metric"] in LOWER_IS_BETTER else max
    return [row["label"], f"{row['parameters']:,}", *losses, f"{best(row['validation']):.4f}"]


if __name__ == "__main__":
    main()

"""How much a score on CLUSTER owes to the graphs that were drawn: one model, many test sets.

    PYTHONPATH=src python benchmarks/draws.py --out FILE.json

The published sets are one draw of their recipe, and ours are another. Trained weights are scored on
further draws of the size of the test part, of graphs that no run has seen; their spread is what a
difference of two draws means. PATTERN is not asked: its graphs share patterns, which a model knows
from training, so that another draw is another task.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from graphmamba.checks import check_choice, check_least
from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.sbm import generate_cluster
from graphmamba.data.store import GraphStore
from graphmamba.environment import describe, resolve_device
from graphmamba.studies.report import table, write_json
from graphmamba.training.checkpoint import load_weights
from graphmamba.training.evaluate import Scorer
from graphmamba.training.predict import Predictor, find_pretrained, load, with_read_columns
from graphmamba.training.run_dir import deviation_of, mean_of

RESULTS = Path(__file__).parent / "results"
BENCHMARK = "cluster"
LEAST_SEED = 1
"""The graphs of seed 0 are those that models are trained on."""


def main() -> None:
    """Score, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weights", type=Path, help="a run or file; those of the repository else")
    parser.add_argument("--sets", type=int, default=8, help="how many test sets to draw")
    parser.add_argument("--graphs", type=int, default=CATALOG[BENCHMARK].test, help="of each set")
    parser.add_argument("--first", type=int, default=LEAST_SEED, help="seed of the first set")
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster_draws.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    check_least("--sets", options.sets, 1)
    check_least("--first", options.first, LEAST_SEED)
    device = resolve_device(options.device)
    trained = load(options.weights or find_pretrained(BENCHMARK))
    check_choice("benchmark of the weights", trained.experiment.dataset, [BENCHMARK])
    seeds = range(options.first, options.first + options.sets)
    found = list(measure(trained.to(device), seeds, options.graphs, device))
    metric = trained.experiment.dataset_info.task.metric
    spread = spread_of([one[metric] for one in found])
    Console().print(
        table(
            f"{metric} on sets of {options.graphs:,} graphs",
            ["seed", "nodes a graph", "score"],
            [
                [str(one["seed"]), f"{one['nodes_a_graph']:.2f}", f"{one[metric]:.4f}"]
                for one in found
            ],
        )
    )
    Console().print(", ".join(f"{name.replace('_', ' ')} {spread[name]:.4f}" for name in spread))
    content = {
        "environment": describe(device, options.commit),
        "scores_of_the_run": load_weights(trained.path).metadata.get("scores"),
        "graphs": options.graphs,
        **spread,
        "sets": found,
    }
    write_json(options.out, content)


def measure(
    trained: Predictor, seeds: range, graphs: int, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Score the model on a set of so many graphs for each seed."""
    for seed in seeds:
        drawn = GraphStore(generate_cluster((0, 0, graphs), seed))
        store = with_read_columns(drawn, trained.model).to(device)
        options = trained.options
        scorer = Scorer(
            trained.model, store, trained.experiment, options.precision, tf32=options.tf32
        )
        nodes = int(drawn.tables["nodes"].ptr[-1])
        yield {"seed": seed, "nodes_a_graph": nodes / graphs, **scorer.score("test")}


def spread_of(scores: list[float]) -> dict[str, float]:
    """Say how far apart the scores of the sets are."""
    return {
        "mean": mean_of(scores),
        "standard_deviation": deviation_of(scores),
        "least": min(scores),
        "most": max(scores),
    }


if __name__ == "__main__":
    main()

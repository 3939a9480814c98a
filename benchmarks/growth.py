"""Where the rows of a graph may grow beyond all numbers in evaluation: layer by layer, in float64.

    PYTHONPATH=src python benchmarks/growth.py --out FILE.json

An untrained model of CLUSTER sees some batches, which move its running statistics, and is then
evaluated on graphs that are new to it. Those for which float32 finds no number are counted; the one
with the largest rows goes through the plain definition again, in float64.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from rich.console import Console
from rounding import in_type, twin_of
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.data.datasets.sbm import generate_cluster
from graphmamba.data.store import GraphStore
from graphmamba.environment import describe
from graphmamba.nn.model import GraphMamba
from graphmamba.studies.report import table, write_json
from graphmamba.training.checkpoint import own_generators
from graphmamba.training.experiment import Experiment, load_experiment
from graphmamba.training.predict import with_read_columns

RESULTS = Path(__file__).parent / "results"
REFERENCE = {"model.mamba.backend": "reference"}


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=40, help="that move running statistics")
    parser.add_argument("--graphs", type=int, default=160, help="to evaluate")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0, help="of graphs and weights")
    parser.add_argument("--out", type=Path, default=RESULTS / "growth.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    check_least("--batches", options.batches, 1)
    check_least("--graphs", options.graphs, 1)
    layers = {"model.layers": options.layers}
    found = measure(layers, options.batches, options.graphs, options.seed)
    Console().print(
        table(
            f"Largest entries of graph {found['graph']} in float64",
            ["layer", "global_model", "rows"],
            [
                [str(number), *(f"{float(one[name]):.3g}" for name in ("global_model", "rows"))]
                for number, one in enumerate(found["layers"])
            ],
        )
    )
    Console().print(f"{found['without_a_number']} of {options.graphs} graphs are no numbers")
    asked = {name: getattr(options, name) for name in ("batches", "graphs", "seed")}
    environment = describe(torch.device("cpu"), options.commit)
    write_json(options.out, {"environment": environment, "asked": asked, **found})


def measure(changes: dict[str, Any], batches: int, graphs: int, seed: int) -> dict[str, Any]:
    """Count graphs without a number, and follow the one with the largest rows."""
    experiment = load_experiment("cluster", changes)
    size = experiment.train.batch_size
    with own_generators(seed):
        model = experiment.build(seed)
    columns = generate_cluster((batches * size, graphs, 0), seed)
    store = with_read_columns(GraphStore(columns), model)
    new = store.split_ids("validation")
    with torch.no_grad():
        model.train()
        for ids in store.split_ids("train").split(size):
            model(store.batch(ids))
        model.eval()
        each = torch.cat([largest_of_each(model, store, ids) for ids in new.split(size)])
    worst = int(new[each.argmax()])
    plain = load_experiment("cluster", changes | REFERENCE)
    return {
        "without_a_number": int((~each.isfinite()).sum()),
        "graph": worst,
        "layers": growth_of(plain, model, store, worst),
    }


def largest_of_each(model: GraphMamba, store: GraphStore, ids: Tensor) -> Float[Tensor, " graphs"]:
    """Return the largest entry of each graph's rows behind the last layer; infinite if none."""
    graphs, kept = store.batch(ids), []
    handle = model.backbone.register_forward_hook(lambda *passed: kept.append(passed[-1]))
    model(graphs)
    handle.remove()
    rows = kept[0].abs().amax(dim=1).nan_to_num(nan=torch.inf)
    return rows.new_zeros(len(ids)).scatter_reduce(0, graphs.batch, rows, "amax")


def growth_of(
    plain: Experiment, model: GraphMamba, store: GraphStore, number: int
) -> list[dict[str, float]]:
    """Return the largest entries of the global model and of the rows of each layer, in float64."""
    twin = twin_of(plain, model, torch.float64).eval()
    graph = in_type(store.batch(torch.tensor([number])), torch.float64)
    found: list[dict[str, float]] = [{} for _ in twin.backbone.layers]
    for line, layer in zip(found, twin.backbone.layers, strict=True):
        layer.register_forward_hook(_keep_largest(line, "rows"))
        layer.get_submodule("global_model").register_forward_hook(
            _keep_largest(line, "global_model")
        )
    with torch.no_grad():
        twin(graph)
    return found


def _keep_largest(line: dict[str, float], name: str) -> Any:
    def hook(_: Any, __: Any, result: Any) -> None:
        rows = result[0] if isinstance(result, tuple) else result
        line[name] = float(rows.abs().max())

    return hook


if __name__ == "__main__":
    main()

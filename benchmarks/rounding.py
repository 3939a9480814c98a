"""What products in TF32 do to the gradients of trained models: emulated on a CPU, beside float64.

    PYTHONPATH=src python benchmarks/rounding.py --data_dir ROOT --out FILE.json

One training step of each model is computed three times with the same graphs, node orders and
weights: in float64, in float32, and in float32 with the factors of all matrix products rounded to
TF32's ten bits. Beside the gradients stand the Laplacian positions as the first layer gets them: a
channel whose values differ by less than a step of TF32 says nothing to the products behind it.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Data

from graphmamba.checks import check_least
from graphmamba.environment import describe
from graphmamba.nn.encoders import LaplacianEncoder
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.model import GraphMamba
from graphmamba.studies.report import table, write_json
from graphmamba.training.evaluate import labelled_batch
from graphmamba.training.experiment import Experiment
from graphmamba.training.graphs import open_data
from graphmamba.training.losses import LOSSES
from graphmamba.training.predict import load

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SETS = "pascalvoc-sp", "peptides-func", "cluster"
DROPPED_BITS = 13
"""Of the 23 that a float32 has behind the point."""
NOTHING = 1e-12
"""Share of the whole gradient below which that of a parameter is 0 but for rounding, as a bias
before a norm has it."""
aten = torch.ops.aten


class RoundedProducts(TorchDispatchMode):
    """Rounds both factors of each matrix product to TF32, to the nearest; sums stay exact."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Compute a product of float32 as a GPU would; leave everything else alone."""
        if func == aten.mm.default and args[0].dtype == torch.float32:
            return _product(*args)
        if func == aten.addmm.default and args[1].dtype == torch.float32 and not kwargs:
            return args[0] + _product(*args[1:])
        return func(*args, **(kwargs or {}))


def to_tf32(x: Tensor) -> Tensor:
    """Round float32 to the nearest TF32; a half goes away from zero."""
    bits = x.contiguous().view(torch.int32) + (1 << (DROPPED_BITS - 1))
    return (bits & ~((1 << DROPPED_BITS) - 1)).view(torch.float32)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return (to_tf32(a).double() @ to_tf32(b).double()).float()


WAYS: dict[str, tuple[torch.dtype, Callable[[], AbstractContextManager[Any]]]] = {
    "float64": (torch.float64, nullcontext),
    "float32": (torch.float32, nullcontext),
    "tf32": (torch.float32, RoundedProducts),
}
SHORT_WAYS = "float32", "tf32"


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", default=SETS, help="data sets whose weights are kept")
    parser.add_argument("--graphs", type=int, default=4, help="of the training part")
    parser.add_argument("--data_dir", type=Path, help="where data sets are kept")
    parser.add_argument("--out", type=Path, default=RESULTS / "rounding_cpu.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    check_least("--graphs", options.graphs, 1)
    rows = list(measure(options.sets, options.data_dir, options.graphs))
    Console().print(
        table(
            "Errors against float64",
            ["weights", "way", "gradient", "median of parameters", "largest", "prediction"],
            [_texts(row["weights"], way, row["errors"][way]) for row in rows for way in SHORT_WAYS],
        )
    )
    environment = describe(torch.device("cpu"), options.commit)
    write_json(options.out, {"environment": environment, "graphs": options.graphs, "rows": rows})


def measure(names: Sequence[str], data_dir: Path | None, graphs: int) -> Iterator[dict[str, Any]]:
    """Compare the three ways for the kept Graph-Mamba of each set."""
    for name in names:
        trained = load(ROOT / "weights" / name / "graph-mamba" / "best.safetensors")
        experiment = trained.experiment
        store = open_data(experiment, data_dir)[1]
        ids, level = store.split_ids("train")[:graphs], experiment.dataset_info.task.level
        batch, target = labelled_batch(store, ids, level, (0,) * graphs)
        assert isinstance(target, Tensor)  # links have no weights here
        yield {"weights": name, **compare(experiment, trained.model, batch, target)}


def compare(
    experiment: Experiment, model: GraphMamba, graphs: Data, target: Tensor
) -> dict[str, Any]:
    """Return the errors of both short ways, and the spread of the positions."""
    results = {
        name: step_of(
            _training_twin(experiment, model, dtype),
            in_type(graphs, dtype),
            target,
            experiment,
            way,
        )
        for name, (dtype, way) in WAYS.items()
    }
    truth = results["float64"]
    return {
        "errors": {name: errors_of(results[name], truth) for name in SHORT_WAYS},
        "positions": positions_of(_training_twin(experiment, model, torch.float32), graphs),
    }


def step_of(
    model: GraphMamba,
    graphs: Data,
    target: Tensor,
    experiment: Experiment,
    way: Callable[[], AbstractContextManager[Any]],
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the prediction and the gradients of one step, in float64 whatever they were in."""
    if target.is_floating_point():
        target = target.to(next(model.parameters()).dtype)
    with way():
        prediction = model(graphs)
        LOSSES[experiment.loss](prediction, target).backward()
    grads = {
        name: parameter.grad.double()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return prediction.detach().double(), grads


def twin_of(experiment: Experiment, model: GraphMamba, dtype: torch.dtype) -> GraphMamba:
    """Build an experiment with the weights of a model, in that type; edges by the definition."""
    twin = experiment.build(0)
    twin.load_state_dict(model.state_dict())
    for module in twin.modules():
        if isinstance(module, GatedGCN):
            module.backend = "reference"
    return twin.to(dtype)


def in_type(graphs: Data, dtype: torch.dtype) -> Data:
    """Return a batch whose columns of floats are of that type."""
    graphs = graphs.clone()
    for name in graphs.keys():  # noqa: SIM118
        if torch.is_tensor(graphs[name]) and graphs[name].is_floating_point():
            graphs[name] = graphs[name].to(dtype)
    return graphs


def errors_of(
    found: tuple[Tensor, Mapping[str, Tensor]], truth: tuple[Tensor, Mapping[str, Tensor]]
) -> dict[str, float | str]:
    """Errors as shares: of the whole gradient, of that of each parameter, of the prediction."""
    apart = {name: float((found[1][name] - exact).norm()) for name, exact in truth[1].items()}
    norms = {name: float(exact.norm()) for name, exact in truth[1].items()}
    whole = sum(norm**2 for norm in norms.values()) ** 0.5
    shares = {name: apart[name] / norm for name, norm in norms.items() if norm > NOTHING * whole}
    worst = max(shares, key=shares.__getitem__)
    return {
        "gradient": sum(each**2 for each in apart.values()) ** 0.5 / whole,
        "median": median(shares.values()),
        "largest": shares[worst],
        "largest_of": worst,
        "prediction": float((found[0] - truth[0]).norm() / truth[0].norm()),
    }


def positions_of(model: GraphMamba, graphs: Data) -> list[dict[str, float]]:
    """Mean and deviation of the channels of Laplacian positions that are not 0, and TF32's step."""
    encoders = [part for part in model.modules() if isinstance(part, LaplacianEncoder)]
    found = []
    with torch.no_grad():
        for encoder in encoders:
            rows: Float[Tensor, "nodes channels"] = encoder(graphs)
            for channel in rows.double().T:
                if channel.any():
                    mean, deviation = float(channel.mean()), float(channel.std())
                    step = 2.0 ** (torch.tensor(mean).abs().log2().floor().item() - 10)
                    found.append({"mean": mean, "deviation": deviation, "step": step})
    return found


def _training_twin(experiment: Experiment, model: GraphMamba, dtype: torch.dtype) -> GraphMamba:
    """A twin in training mode, but that no sign of a position is drawn."""
    twin = twin_of(experiment, model, dtype).train()
    for module in twin.modules():
        if isinstance(module, LaplacianEncoder):
            module.eval()
    return twin


def _texts(weights: str, way: str, errors: Mapping[str, Any]) -> list[str]:
    shares = [f"{errors[name]:.1e}" for name in ("gradient", "median", "largest", "prediction")]
    return [weights, way, *shares]


if __name__ == "__main__":
    main()

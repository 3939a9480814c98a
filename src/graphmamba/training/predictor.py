"""A trained model, ready for use: `graphmamba.load(path).predict(graphs)`."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.checks import check_is
from graphmamba.data.custom.networkx import Graphs, convert, networkx_graphs
from graphmamba.data.custom.pyg import list_of
from graphmamba.data.datasets.sources import SOURCES
from graphmamba.data.neighbor_sampling import NeighbourStore
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS, GraphColumns
from graphmamba.data.transforms.degree_profile import DEGREE_PROFILE_COLUMNS, degree_profiles
from graphmamba.data.transforms.precompute import precomputed
from graphmamba.environment import resolve_device
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.parse import suggest
from graphmamba.training.compile import compile_parts, is_captured
from graphmamba.training.evaluate import Scorer
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.graphs import fits, in_parts
from graphmamba.training.predict import BUDGET, Predictions, stream_predictions
from graphmamba.training.results import Scores
from graphmamba.training.run_dir import RunDir
from graphmamba.training.weights import build_model, load_weights

READ = frozenset({"x", "edge_index", "edge_attr", LINKS})
"""Columns of PyG graphs that a model may read; others stay behind."""


class Predictor:
    """A model with its weights and with what it was trained for.

    Args:
        experiment: What the model was built from.
        model: The model.
        names: Classes by their number, or label columns.
        path: Where it was read from, for messages.
        options: How its run computed; None for the defaults.
        graphs: Which custom graphs it was trained on; see `identity_of`.
        reported: What it scored, by split; None where nobody has scored it.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: GraphMamba,
        names: tuple[str, ...] = (),
        path: Path | str = "model",
        options: RunOptions | None = None,
        graphs: str = "",
        reported: Mapping[str, Scores] | None = None,
    ) -> None:
        self.experiment, self.model, self.names, self.path = experiment, model, names, Path(path)
        self.options, self.graphs = options or RunOptions(), graphs
        self.reported = reported or {}

    def to(self, device: torch.device | str) -> "Predictor":
        """Move the model to a device; predictions are made there."""
        self.model.to(device)
        return self

    def predict(
        self,
        graphs: Graphs | GraphStore,
        *,
        has_std: bool = True,
        budget: int = BUDGET,
    ) -> Predictions:
        """Predict all graphs; random node orders depend on the index of each graph.

        Args:
            graphs: Graphs of PyG, in a list, a `DataLoader` or a `Batch`, or a store; columns that
                the model computes from edges, such as Laplacian positions, are added here.
            has_std: Compute the standard deviation of outputs over random node orders.
            budget: Most nodes and edges per batch.
        """
        parts = list(self.stream(graphs, has_std=has_std, budget=budget))
        if not parts:
            raise UserError("graphs must hold a graph, got none")
        return Predictions.cat(parts)

    def stream(
        self,
        graphs: Graphs | GraphStore,
        ids: Int[Tensor, " graphs"] | None = None,
        *,
        has_std: bool = True,
        budget: int = BUDGET,
    ) -> Iterator[Predictions]:
        """Predict batch after batch, so that results need not fit into memory.

        Args:
            graphs: As in `predict`.
            ids: Which of them; None for all.
            has_std: As in `predict`.
            budget: As in `predict`.
        """
        store = graphs if isinstance(graphs, GraphStore) else self._store_of(graphs)
        name, own = self.experiment.dataset, self.experiment.data
        # nodes of a set without features have their degrees
        has_profiles = own is None and not SOURCES[name].has_features
        store = with_read_columns(store, self.model, has_profiles=has_profiles)
        drawn, device = self.experiment.train.neighbours, next(self.model.parameters()).device
        is_sampled = drawn and len(store) == 1 and self.model.task.level == "node"
        if is_sampled and not fits(self.experiment, store, device):
            # as it was learned; the nodes are the items of this store
            assert drawn
            store, ids = NeighbourStore(store, drawn), None
        return stream_predictions(
            self.model,
            store,
            ids,
            objective=self.experiment.objective(),
            names=self.names,
            has_std=has_std,
            budget=budget,
        )

    def _store_of(self, graphs: Graphs) -> GraphStore:
        own = self.experiment.data
        if networkx_graphs(graphs) is not None:
            left_out = own.targets if own and own.targets else ("y",)
            graphs = convert(graphs, left_out, own.columns if own else ()).graphs
        graphs = list_of(graphs)
        found = {name for graph in graphs for name in graph.keys()}  # noqa: SIM118
        features = self.model.features
        kinds = {"x": features.nodes, "edge_attr": features.edges}
        return GraphStore.from_pyg(
            [_as_trained(graph, number, kinds) for number, graph in enumerate(graphs)],
            exclude=found - READ,
        )


def _as_trained(graph: Data, number: int, kinds: Mapping[str, str]) -> Data:
    """Take numbers of any type as floats, as training does; those that are none are rejected."""
    numbers = {}
    for name, kind in kinds.items():
        values = graph.get(name)
        if kind == "numbers" and isinstance(values, Tensor) and not values.is_complex():
            numbers[name] = values.float()
            if not bool(torch.isfinite(numbers[name]).all()):
                raise UserError(f"graphs[{number}].{name} must hold finite numbers, got others")
    return Data.from_dict({**graph.to_dict(), **numbers}) if numbers else graph


def load(path: Path | str) -> Predictor:
    """Load a trained model; no code in the file is run.

    Args:
        path: Directory of a run, of a series of seeds or folds, or a file of weights.
    """
    check_is("path", path, str | Path)
    path = weights_in(Path(path))
    weights = load_weights(path)
    model = build_model(weights, path)
    return Predictor(
        weights.experiment,
        model,
        weights.class_names,
        path,
        weights.options,
        str(weights.metadata.get("graphs", "")),
        weights.reported,
    )


def weights_in(path: Path) -> Path:
    """Find the weights of a run, of several the best by validation; or take the file itself."""
    if not path.is_dir():
        if not path.exists():
            raise UserError(f"a run folder or file of weights must be there, got no '{path}'")
        return path
    best = RunDir(path).best
    if best.is_file():
        return best
    files = [*path.glob(f"seed-*/{best.name}"), *path.glob(f"fold-*/{best.name}")]
    series = {file: load_weights(file) for file in files}
    if not series:
        raise UserError(f"'{path}' must hold {best.name}, which a run writes after its first epoch")
    return min(series, key=lambda file: series[file].rank)


def with_read_columns(
    store: GraphStore, model: GraphMamba, *, has_profiles: bool = False
) -> GraphStore:
    """Return the store with the columns that the model reads, those that are missing computed.

    Args:
        store: Graphs.
        model: What reads them.
        has_profiles: Whether nodes without features have their degrees, as in training.
    """
    columns: GraphColumns | None = None
    if "x" not in store.tables["nodes"].columns:
        columns = store.to("cpu").columns()
        width = model.features.node_columns
        if width != (DEGREE_PROFILE_COLUMNS if has_profiles else 1):
            raise UserError(f"graphs.x must have {width} columns, as in training, got no x")
        # as in training: call graphs have their degrees, others nothing to tell nodes apart
        nodes = int(columns.node_ptr[-1])
        x = degree_profiles(columns) if has_profiles else torch.ones(nodes, 1)
        store = store.with_columns(nodes={"x": x})
    wanted = model.precompute.parts()
    have = {name for table in store.tables.values() for name in table.columns}
    laplacian = {"laplacian"} if "laplacian_vectors" in have else set()
    if not wanted.keys() - have - laplacian:
        return store
    made = precomputed(columns or store.to("cpu").columns(), model.precompute)
    return store.with_columns(nodes=made.nodes, pairs=made.pairs)


def scorer_of(trained: Predictor, store: GraphStore, device: torch.device) -> Scorer:
    """Make a scorer that computes as the run of a trained model did.

    Whatever the graphs are, the model's own task and loss say how it is scored.

    Args:
        trained: The model, which is moved to the device.
        store: Graphs with the columns that it reads.
        device: Where to compute.
    """
    experiment, options = trained.experiment, trained.options
    if options.compile == "on" and device.type == resolve_device(options.device).type:
        compile_parts(trained.model)
    return Scorer(
        trained.model.to(device),
        in_parts(experiment, store, device)[1],
        experiment,
        options.precision,
        is_captured(options, device, options.devices * options.nodes, store),
        tf32=options.tf32,
    )


PACKAGED = Path(__file__).parents[1] / "weights"
"""Where an installed package has them."""
CLONED = Path(__file__).parents[3] / "weights"
"""Where they are in the repository, which a clone is run from."""
SUFFIX = ".safetensors"
MAIN = "/graph-mamba"
"""What the name of a benchmark alone leaves out."""


def load_pretrained(name: str, folder: Path | str | None = None) -> Predictor:
    """Load a model with the weights shipped in this package.

    Args:
        name: As in `find_pretrained`.
        folder: As in `find_pretrained`.
    """
    return load(find_pretrained(name, folder))


def find_pretrained(name: str, folder: Path | str | None = None) -> Path:
    """Find weights by the name of their experiment.

    Args:
        name: `BENCHMARK/MODEL`, or `BENCHMARK` alone for Graph-Mamba on it.
        folder: Where `NAME/best.safetensors` or `NAME.safetensors` is; None for
            $GRAPHMAMBA_WEIGHTS, or else the weights of this copy.
    """
    check_is("name", name, str)
    own = PACKAGED if PACKAGED.is_dir() else CLONED
    where = Path(folder or os.environ.get("GRAPHMAMBA_WEIGHTS") or own)
    for full in (name, f"{name}{MAIN}"):
        for place in (RunDir(where / full).best, where / f"{full}{SUFFIX}"):
            if place.is_file():
                return place
    found = sorted(
        str(file.relative_to(where).with_suffix("")).removesuffix("/best")
        for file in where.rglob(f"*{SUFFIX}")
    )
    # a benchmark that is misspelt stands for Graph-Mamba on it
    found.sort(key=lambda each: not each.endswith(MAIN))
    raise UserError(f"no pretrained weights '{name}' in '{where}'; {suggest(name, found)}")

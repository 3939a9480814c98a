"""Trained models: `graphmamba.load(path).predict(graphs)`, and predictions as CSV."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.atomic import atomic_write
from graphmamba.checks import check_is, check_least
from graphmamba.data.batch import column
from graphmamba.data.catalog import PredictionKind
from graphmamba.data.custom.networkx import Graphs, convert, networkx_graphs
from graphmamba.data.custom.pyg import list_of
from graphmamba.data.datasets.sources import SOURCES
from graphmamba.data.neighbor_sampling import SEEDS, NeighbourStore
from graphmamba.data.sampler import batches_by_cost
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS, GraphColumns
from graphmamba.data.transforms.degree_profile import DEGREE_PROFILE_COLUMNS, degree_profiles
from graphmamba.data.transforms.precompute import precomputed
from graphmamba.environment import resolve_device
from graphmamba.errors import UserError
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.heads import pair_scores
from graphmamba.nn.model import GraphMamba
from graphmamba.ops.random import draw_bits
from graphmamba.parse import suggest
from graphmamba.training.checkpoint import build_model, load_weights, readable
from graphmamba.training.compile import compile_parts, is_captured
from graphmamba.training.evaluate import Scorer, evaluating
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.graphs import fits, in_parts
from graphmamba.training.run_dir import RunDir, Scores


@dataclass(frozen=True)
class Predictions:
    """Predictions: one row per graph, node or pair, in the order of the graphs."""

    kind: PredictionKind
    names: tuple[str, ...]
    """Names of the columns: classes, labels or targets."""
    graph: Int[Tensor, " rows"]
    """Index of the graph of each row."""
    node: Int[Tensor, " rows"] | None
    """Index of the node in its graph; None for predictions of graphs or pairs."""
    pair: Int[Tensor, "rows 2"] | None
    """Indices of both nodes in their graph; None for predictions of graphs or nodes."""
    outputs: Float[Tensor, "rows columns"]
    """Probabilities of classes or labels, predicted values, or scores of pairs."""
    std: Float[Tensor, "rows columns"] | None
    """Standard deviation of outputs over random node orders; None for models with a single one."""

    @property
    def classes(self) -> Int[Tensor, " rows"]:
        """Index of the most probable class of each row; -1 where outputs are NaN."""
        if self.kind != "classes":
            raise UserError(
                f"kind must be 'classes' for one class per row, got {self.kind!r}: see outputs"
            )
        return self.outputs.argmax(dim=1).where(~self.outputs.isnan().any(dim=1), -1)

    @property
    def labels(self) -> list[str]:
        """Name of the most probable class of each row; empty where outputs are NaN."""
        return [self.names[number] if number >= 0 else "" for number in self.classes.tolist()]

    @property
    def probabilities(self) -> Float[Tensor, "rows columns"]:
        """Probabilities of classes or labels; regression and links have none."""
        if self.kind not in ("classes", "multi-label"):
            raise UserError(
                f"kind must be 'classes' or 'multi-label', got {self.kind!r}: see outputs"
            )
        return self.outputs

    def __len__(self) -> int:
        return len(self.graph)

    def by_graph(self) -> "Predictions":
        """Return the rows sorted by graph."""
        order = self.graph.argsort(stable=True)
        return self._with(lambda name: getattr(self, name)[order])

    @staticmethod
    def cat(parts: Sequence["Predictions"]) -> "Predictions":
        """Concatenate predictions."""
        return parts[0]._with(lambda name: torch.cat([getattr(part, name) for part in parts]))

    def _with(self, made: Callable[[str], Tensor]) -> "Predictions":
        """The same with other columns, where it has them."""
        names = ("graph", "node", "pair", "outputs", "std")
        columns: Any = {name: made(name) for name in names if getattr(self, name) is not None}
        return replace(self, **columns)


NODES = 512
"""Nodes per batch with neighbour sampling."""
BUDGET = 200_000
"""Nodes and edges per batch: some hundred megabytes at the widths of the paper."""


def _in_pieces(
    predict: Callable[[Int[Tensor, " graphs"]], Predictions], chosen: Int[Tensor, " graphs"]
) -> Iterator[Predictions]:
    """Predict a batch; if the GPU runs out of memory, predict its halves."""
    try:
        yield predict(chosen)
        return
    except torch.OutOfMemoryError as full:
        if len(chosen) == 1:
            raise UserError(
                f"graph {int(chosen[0])} must fit into the GPU's memory, and it does not; "
                "device='cpu' may have more"
            ) from full
    # only here, past the error, are the tensors of the attempt gone
    torch.cuda.empty_cache()
    for half in chosen.tensor_split(2):
        yield from _in_pieces(predict, half)


def single_order(model: GraphMamba) -> tuple[GraphMamba | None, int]:
    """Copy a model that uses one node order per pass; and the number of orders of the original.

    None if the model uses one order anyway: `eval_samples` is 1, or orders are not random.
    """
    single = deepcopy(model).eval()
    global_models = [part for part in single.modules() if isinstance(part, GraphMambaGlobal)]
    samples = max((each.policy.samples(is_training=False) for each in global_models), default=1)
    for global_model in global_models:
        global_model.policy = replace(global_model.policy, eval_samples=1)
    return single if samples > 1 else None, samples


MOST_PAIRS = 20_000_000
"""Most pairs that are scored if none are given: those of some 6,000 nodes."""


def _all_pairs(ptr: Int[Tensor, " boundaries"]) -> Int[Tensor, "2 pairs"]:
    """All pairs of nodes of each graph, if no pairs are given."""
    sizes = ptr.diff()
    if int((sizes * (sizes - 1) // 2).sum()) > MOST_PAIRS:
        raise UserError(
            f"graphs must name the pairs to score where there are more than {MOST_PAIRS:,} (by "
            f"{LINKS} or pairs.csv), got none for a graph of {int(sizes.max()):,} nodes"
        )
    parts = [
        torch.triu_indices(size, size, offset=1) + begin
        for begin, size in zip(ptr.tolist(), sizes.tolist(), strict=False)
    ]
    return torch.cat([torch.empty(2, 0, dtype=torch.int64), *parts], dim=1)


def write_predictions(
    path: Path,
    parts: Iterable[Predictions],
    graph_name: Callable[[int], str] = str,
    node_name: Callable[[int, int], str] = lambda _graph, node: str(node),
    skipped: Sequence[int] = (),
    folds: Int[Tensor, " graphs"] | None = None,
) -> int:
    """Write one line per row; returns the number of lines.

    Args:
        path: The file.
        parts: Predictions, batch after batch; only one is held at a time.
        graph_name: Maps the index of a graph to its name.
        node_name: Maps the indices of graph and node to the name of the node.
        skipped: Rows of the input table that were left out; they get a line without values, so that
            lines match the table.
        folds: Fold of each graph, for a column of its own.
    """
    rows, left = len(skipped), list(skipped)[::-1]

    def write(partial: Path) -> None:
        nonlocal rows
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            header: list[str] = []
            for part in parts:
                if not header:
                    header = _header_of(part)
                    writer.writerow(header if folds is None else [*header, "fold"])
                lines = _lines(part, graph_name, node_name)
                for graph, line in zip(part.graph.tolist(), lines, strict=True):
                    while left and left[-1] <= graph + len(skipped) - len(left):
                        writer.writerow([left.pop(), *[""] * (len(header) - 1)])
                    writer.writerow(line if folds is None else [*line, int(folds[graph])])
                rows += len(part)
            writer.writerows([row, *[""] * (len(header) - 1)] for row in left[::-1])

    atomic_write(path, write)
    return rows


def _header_of(part: Predictions) -> list[str]:
    place = ["node"] if part.node is not None else []
    place = ["source", "target"] if part.pair is not None else place
    is_classes = part.kind == "classes"
    prefix = "p_" if is_classes or part.kind == "multi-label" else ""
    values = [*(["class"] if is_classes else []), *(f"{prefix}{name}" for name in part.names)]
    stds = ["std"] if is_classes or len(part.names) == 1 else [f"std_{n}" for n in part.names]
    return ["graph", *place, *values, *(stds if part.std is not None else [])]


def _lines(
    part: Predictions, graph_name: Callable[[int], str], node_name: Callable[[int, int], str]
) -> Iterator[list[str]]:
    nodes: list[list[int]] = [[]] * len(part)
    if part.pair is not None:
        nodes = part.pair.tolist()
    elif part.node is not None:
        nodes = part.node[:, None].tolist()
    outputs, stds = part.outputs, part.std
    labels: list[list[str]] = [[]] * len(part)
    if part.kind == "classes":
        labels = [[label] for label in part.labels]
        if stds is not None:
            # the doubt about the class that is named; where none is, all are NaN alike
            stds = stds.gather(1, part.classes.clamp_min(0)[:, None])
    values = (outputs if stds is None else torch.cat([outputs, stds], dim=1)).tolist()
    for row, graph in enumerate(part.graph.tolist()):
        names = [graph_name(graph), *(node_name(graph, node) for node in nodes[row])]
        yield [*names, *labels[row], *(f"{value:.6g}" for value in values[row])]


READ = frozenset({"x", "edge_index", "edge_attr", LINKS})
"""Columns of PyG graphs that a model may read; others are ignored."""


@dataclass
class Predictor:
    """A trained model, with its experiment and class names."""

    experiment: Experiment
    """The experiment of the model."""
    model: GraphMamba
    names: tuple[str, ...] = ()
    """Names of the classes, or of the target columns."""
    path: Path = Path("model")
    """Path of the weights, for messages."""
    options: RunOptions = field(default_factory=RunOptions)
    """Options of its run."""
    graphs: str = ""
    """Fingerprint of the custom graphs of its training; see `identity_of`."""
    reported: Mapping[str, Scores] = field(default_factory=dict)
    """Stored scores by split."""

    def to(self, device: torch.device | str) -> "Predictor":
        """Move the model to a device, where it predicts."""
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
        """Predict batch by batch, so that results need not fit into memory.

        The model runs in evaluation mode: each layer averages over `eval_samples` node orders. The
        standard deviation is that of as many passes with a single node order each.

        Args:
            graphs: As in `predict`.
            ids: Indices of the graphs; None for all.
            has_std: As in `predict`.
            budget: As in `predict`; a larger graph is a batch by itself.
        """
        check_least("budget", budget, 1)
        store = graphs if isinstance(graphs, GraphStore) else self._store_of(graphs)
        name, own = self.experiment.dataset, self.experiment.data
        # nodes of a set without features have their degrees
        has_profiles = own is None and not SOURCES[name].has_features
        store = with_read_columns(store, self.model, has_profiles=has_profiles)
        drawn, device = self.experiment.train.neighbours, next(self.model.parameters()).device
        is_one = len(store) == 1 and self.model.task.level == "node"
        batches: Iterable[Int[Tensor, " graphs"]]
        if drawn and is_one and not fits(self.experiment, store, device):
            # as it was learned; the nodes are the items of this store
            store = NeighbourStore(store, drawn)
            batches = torch.arange(len(store)).split(NODES)
        else:
            ids = torch.arange(len(store)) if ids is None else ids.cpu()
            if not len(ids):
                return
            nodes, edges = (
                torch.from_numpy(store.tables[each].ptr).diff() for each in ("nodes", "edges")
            )
            costs = (nodes + edges)[ids]
            batches = batches_by_cost(ids, costs, budget)
        single, samples = single_order(self.model) if has_std else (None, 1)
        with evaluating(self.model):
            for chosen in batches:
                yield from _in_pieces(partial(self._predict, store, single, samples), chosen)

    @torch.no_grad()
    def _predict(
        self,
        store: GraphStore,
        single: GraphMamba | None,
        samples: int,
        chosen: Int[Tensor, " graphs"],
    ) -> Predictions:
        """Predict one batch: by the model, then by its copy with single node orders."""
        task, device = self.model.task, next(self.model.parameters()).device
        graphs = store.batch(chosen, by_source=True).to(device)
        is_sampled = isinstance(store, NeighbourStore)
        node, pair, joined = None, None, None
        if is_sampled:
            graph, node = torch.zeros_like(chosen), chosen
        elif task.level == "graph":
            graph = chosen
        else:
            batch, ptr = graphs.batch.cpu(), graphs.ptr.cpu()
            graph, node = chosen[batch], torch.arange(len(batch)) - ptr[batch]
            if task.level == "link":
                asked = column(graphs, LINKS)
                joined = _all_pairs(ptr) if asked is None else asked.cpu()
                owner = batch[joined[0]]
                graph, node, pair = chosen[owner], None, (joined - ptr[owner]).T.contiguous()
                joined = joined.to(device)
        objective = self.experiment.objective().to(device)

        def outputs_of(model: GraphMamba, check: bool) -> Float[Tensor, "rows columns"]:
            rows = model(graphs, check=check)
            rows = rows[graphs[SEEDS]] if is_sampled else rows
            rows = rows if joined is None else pair_scores(rows, joined)[:, None]
            rows = objective.in_units(rows)
            if task.kind == "classes" and rows.shape[1] == 1:
                # one logit for two classes
                rows = torch.cat([(-rows).sigmoid(), rows.sigmoid()], dim=1)
            elif task.kind == "classes":
                rows = rows.softmax(dim=1)
            elif task.kind == "multi-label" or objective.loss == "link_cross_entropy":
                rows = rows.sigmoid()
            return rows.double().cpu()

        outputs, std = outputs_of(self.model, check=True), None
        if single is not None:
            others = []
            for sample in range(samples):
                seed = draw_bits(self.model.backbone.noise_seed.seed, sample)
                single.backbone.noise_seed.seed.copy_(seed)
                others.append(outputs_of(single, check=False))
            # without rows, such as pairs of lone nodes, torch complains of too few node orders
            std = torch.stack(others).std(dim=0, correction=0) if len(outputs) else outputs
        names = self.names or tuple(map(str, range(task.classes or task.outputs)))
        names = ("score",) if task.level == "link" else names
        return Predictions(task.kind, names, graph, node, pair, outputs, std)

    def _store_of(self, graphs: Graphs) -> GraphStore:
        """Make a store; features become floats, NaN and infinity are rejected."""
        own, features = self.experiment.data, self.model.features
        if networkx_graphs(graphs) is not None:
            left_out = own.targets if own and own.targets else ("y",)
            graphs = convert(graphs, left_out, own.columns if own else ()).graphs
        taken = []
        for number, graph in enumerate(list_of(graphs)):
            columns = graph.to_dict()
            for name, kind in (("x", features.nodes), ("edge_attr", features.edges)):
                values = columns.get(name)
                if kind == "numbers" and isinstance(values, Tensor) and not values.is_complex():
                    columns[name] = values.float()
                    if not bool(torch.isfinite(columns[name]).all()):
                        raise UserError(
                            f"graphs[{number}].{name} must hold finite numbers, got others"
                        )
            taken.append(Data.from_dict(columns))
        found = {name for graph in taken for name in graph.keys()}  # noqa: SIM118
        return GraphStore.from_pyg(taken, exclude=found - READ)


def load(path: Path | str) -> Predictor:
    """Load a trained model; never runs code from the file.

    Args:
        path: Directory of a run, of a series of seeds or folds, or a file of weights.
    """
    check_is("path", path, str | Path)
    path = Path(path)
    with readable(path):
        path = weights_in(path)
        weights = load_weights(path)
        return Predictor(
            weights.experiment,
            build_model(weights, path),
            weights.class_names,
            path,
            weights.options,
            weights.metadata.get("graphs", ""),
            weights.reported,
        )


def weights_in(path: Path) -> Path:
    """Return the weights file of a run, or of the best run of a series by validation."""
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
    """Return the store with the columns that the model reads; computes missing ones.

    With `has_profiles`, nodes without features get degree profiles, as in training.
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
    """Make a scorer with the settings of the model's run.

    Metrics and loss are those of the model.
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
"""Directory of the weights in an installed package."""
CLONED = Path(__file__).parents[3] / "weights"
"""Directory of the weights in the repository."""
MAIN = "/graph-mamba"
"""Model that the name of a benchmark alone stands for."""


def load_pretrained(name: str, folder: Path | str | None = None) -> Predictor:
    """Load a model with the weights shipped in this package; arguments as in `find_pretrained`."""
    return load(find_pretrained(name, folder))


def find_pretrained(name: str, folder: Path | str | None = None) -> Path:
    """Find shipped weights by name.

    Args:
        name: `BENCHMARK/MODEL`, or `BENCHMARK` alone for Graph-Mamba on it.
        folder: Where `NAME/best.safetensors` or `NAME.safetensors` is; None for
            $GRAPHMAMBA_WEIGHTS, or else the weights of this copy.
    """
    check_is("name", name, str)
    own = PACKAGED if PACKAGED.is_dir() else CLONED
    where = Path(folder or os.environ.get("GRAPHMAMBA_WEIGHTS") or own)
    for full in (name, f"{name}{MAIN}"):
        for place in (RunDir(where / full).best, where / f"{full}.safetensors"):
            if place.is_file():
                return place
    found = sorted(
        str(file.relative_to(where).with_suffix("")).removesuffix("/best")
        for file in where.rglob("*.safetensors")
    )
    # a benchmark that is misspelt stands for Graph-Mamba on it
    found.sort(key=lambda each: not each.endswith(MAIN))
    raise UserError(f"no pretrained weights '{name}' in '{where}'; {suggest(name, found)}")

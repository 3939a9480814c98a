"""The graphs of an experiment: opened from files, taken from Python, checked on resume."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from graphmamba.checks import check_is
from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import CustomGraphs, label_statistics
from graphmamba.data.custom.networkx import Graphs
from graphmamba.data.custom.open import open_custom, read_graphs, read_unlabelled
from graphmamba.data.custom.options import KINDS_OF_FILES, DataOptions, DataSource
from graphmamba.data.datasets.sources import open_with_columns
from graphmamba.data.neighbor_sampling import NeighbourStore
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import DESCRIPTORS, LINKS, NODE_SPLIT, PAIR_SPLIT
from graphmamba.data.transforms.precompute import Precompute, precomputed
from graphmamba.errors import UserError
from graphmamba.nn.model import columns_read
from graphmamba.training.defaults import Size, default_experiment
from graphmamba.training.distributed import ROOM, free_memory, move_store
from graphmamba.training.experiment import Experiment


def open_data(
    experiment: Experiment, data_dir: Path | None = None, *, draws_split: bool = True
) -> tuple[Experiment, GraphStore]:
    """Open the graphs of an experiment; custom graphs add their features, task and names to it.

    Args:
        experiment: The data set, and the columns that the model reads.
        data_dir: Directory of data sets; None for the default.
        draws_split: Whether custom graphs without a split are split.
    """
    check_is("experiment", experiment, Experiment, "load_experiment reads one by its name")
    asked = columns_read(experiment.model, experiment.encoder)
    if experiment.data is None:
        experiment.check_loss()
        return experiment, open_with_columns(
            experiment.dataset, asked, data_dir, sizes=experiment.split_sizes
        )
    if not experiment.data.path:
        # it would mean the folder that one happens to be in
        if experiment.data.labels is None:
            raise UserError(f"data.path must be {KINDS_OF_FILES}, got ''")
        raise UserError(
            "data.path must name the graphs: the model was trained on graphs given from Python; "
            "give others to evaluate or predict with --input, "
            "and resume from Python, with fit(experiment, graphs, run_dir=..., resume=True)"
        )
    options = experiment.data.options
    found = open_custom(experiment.data.path, options, data_dir, draws_split=draws_split)
    found = found.with_columns(asked)
    data = experiment.data.described(
        found.features, found.task, found.class_names, found.feature_names
    )
    experiment = with_statistics(replace(experiment, data=data), found.store)
    experiment.check_loss()
    return experiment, found.store


def open_with_defaults(
    data: DataSource,
    size: Size = "auto",
    given: Mapping[str, object] | None = None,
    data_dir: Path | None = None,
) -> tuple[Experiment, GraphStore]:
    """Open custom graphs, and choose model and training by the data.

    Args:
        data: Path and reading options.
        size: Of the model.
        given: Options of the user by dotted key, which override the defaults.
        data_dir: Directory of data sets; None for the default.
    """
    found = open_custom(data.path, data.options, data_dir, describes=True)
    data = data.described(found.features, found.task, found.class_names, found.feature_names)
    if data.descriptors is None and found.features.nodes == "atoms":
        data = replace(data, descriptors=found.features.graph_columns > 0)
    experiment = default_experiment(data, found.store, size, given)
    found = found.with_columns(columns_read(experiment.model, experiment.encoder))
    experiment = with_statistics(experiment, found.store)
    experiment.check_loss()
    return experiment, found.store


def take_graphs(
    graphs: Graphs,
    experiment: Experiment | None = None,
    options: DataOptions | None = None,
    size: Size = "auto",
) -> tuple[Experiment, GraphStore]:
    """Return an experiment and a store for these graphs, with the columns that the model reads.

    Args:
        graphs: PyG graphs with `x`, `edge_index`, `y`, optionally `edge_attr` and `split` (or node
            masks); as a list, a dataset, a `DataLoader`, a `Batch` or a single `Data`. Or networkx
            graphs, whose attributes are features.
        experiment: Model and training; None chooses them by the data.
        options: Task of the labels and how to split; None infers both.
        size: Size of the chosen model if no experiment is given.
    """
    options = options or DataOptions()
    if experiment is not None:
        check_is("experiment", experiment, Experiment, "load_experiment reads one by its name")
    check_is("options", options, DataOptions)
    found, store = read_graphs(graphs, options)
    data = DataSource.of(options).described(
        found.features, found.task, found.class_names, found.feature_names
    )
    if experiment is None:
        experiment = default_experiment(data, store, size)
    experiment = with_statistics(replace(experiment, data=data, split_sizes=None), store)
    experiment.check_loss()
    asked = columns_read(experiment.model, experiment.encoder)
    if asked != Precompute(seed=asked.seed):
        made = precomputed(store.columns(), asked)
        store = store.with_columns(nodes=made.nodes, pairs=made.pairs)
    return experiment, store


def names_in(experiment: Experiment) -> CustomGraphs | None:
    """Names of custom graphs in files; None if they are numbered."""
    own = experiment.data
    return read_unlabelled(own.path, own.options.undrawn) if own is not None and own.path else None


def with_statistics(experiment: Experiment, store: GraphStore) -> Experiment:
    """Add statistics of the training labels of custom graphs to an experiment."""
    data = experiment.data
    if data is None or data.labels is None or data.labels.level == "link":
        return experiment
    table = store.tables[f"{data.labels.level}s"]
    if store.split is None and NODE_SPLIT not in table.columns:
        return experiment
    y = labels_in(store, data.labels.level, "train")
    found = label_statistics(y, data.labels, standardizes=data.standardize_targets)
    return replace(experiment, data=replace(data, statistics=found))


def labels_in(store: GraphStore, level: Level, split: str) -> Tensor:
    """Labels of the graphs or nodes of a split, on the CPU."""
    table = store.tables[f"{level}s"]
    if NODE_SPLIT in table.columns:
        is_in = table.given(NODE_SPLIT).cpu() == SPLITS[split]
    else:
        chosen = torch.zeros(len(store), dtype=torch.bool)
        chosen[store.split_ids(split).cpu()] = True
        is_in = chosen.repeat_interleave(torch.from_numpy(table.ptr).diff())
    return table.given("y").cpu()[is_in]


PER_NODE, PER_EDGE = 40, 4
"""Floats per channel and layer that a step on a whole graph keeps for each node and edge, measured
on the CPU; evaluation keeps those of one layer."""
DRAWN = 10, 512
"""Neighbours of a node, and nodes or pairs of a batch, with neighbour sampling."""


def in_parts(
    experiment: Experiment, store: GraphStore, device: torch.device
) -> tuple[Experiment, GraphStore]:
    """Train on the whole graph if a step fits into memory, otherwise with neighbour sampling.

    Evaluation uses the whole graph as long as single layers fit; ranking metrics always need it.

    Args:
        experiment: `train.neighbours` decides, or null for automatic.
        store: Graphs on the CPU.
        device: Device of the training.

    Returns:
        The experiment with the decision, and the store, with its graphs or batches on the device.
    """
    train, level = experiment.train, experiment.dataset_info.task.level
    is_one = len(store) == 1 and store.is_transductive
    if train.neighbours is None and is_one:
        if not fits(experiment, store, device, experiment.model.layers):
            drawn, size = DRAWN
            train = replace(train, neighbours=drawn, batch_size=size)
        else:
            train = replace(train, neighbours=0)
        experiment = replace(experiment, train=train)
    if train.neighbours and not is_one:
        raise UserError(
            f"train.neighbours must be null or 0 where the nodes or links of one graph are not "
            f"split, got {train.neighbours}"
        )
    if train.neighbours:
        whole = level == "link" or fits(experiment, store, device)
        drawn = train.neighbours
        return experiment, NeighbourStore(store.to("cpu"), drawn, device, is_scored_whole=whole)
    return experiment, move_store(store, device)


def fits(experiment: Experiment, store: GraphStore, device: torch.device, layers: int = 1) -> bool:
    """Whether a graph and the activations of `layers` layers fit into half of the free memory."""
    nodes, edges = (int(store.tables[kind].ptr[-1]) for kind in ("nodes", "edges"))
    # without embeddings of edges a sum over neighbours keeps no row for each edge
    rows = PER_NODE * nodes + PER_EDGE * edges * experiment.encoder.has_edges
    numbers = experiment.model.channels * layers * rows
    return 4 * numbers <= ROOM * free_memory(device)


READ = {
    *("x", "edge_index", "edge_attr", DESCRIPTORS, LINKS, "edge_label", "y"),
    *(NODE_SPLIT, PAIR_SPLIT),
}
"""Columns from the data; others are computed from them."""


def identity_of(experiment: Experiment, store: GraphStore) -> str:
    """Fingerprint of custom graphs; empty for benchmarks."""
    if experiment.data is None:
        return ""
    digest = sha256()
    for kind, table in sorted(store.tables.items()):
        digest.update(kind.encode() + table.ptr.tobytes())
        for name in sorted(table.columns.keys() & READ):
            values = table.columns[name].values
            digest.update(f"{name} {values.dtype} {list(values.shape)}".encode())
            digest.update(values.numpy(force=True).tobytes())
    if store.split is not None:
        digest.update(store.split.numpy(force=True).tobytes())
    return digest.hexdigest()[:16]


def check_same_graphs(experiment: Experiment, known: object, found: str, use: str) -> None:
    """Reject graphs other than those of the training, if their fingerprint is known.

    Args:
        experiment: Its data source: files or Python.
        known: Fingerprint stored with the run; empty in older ones.
        found: Fingerprint of the present graphs.
        use: Advice for the message.
    """
    if known and found and known != found:
        is_in_files = experiment.data is not None and experiment.data.path
        rule = "data.path must hold the graphs" if is_in_files else "graphs must be those"
        raise UserError(
            f"{rule} of the training, with the same parts and labels, got others: {use}"
        )

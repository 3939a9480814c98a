"""The graphs of an experiment: opened, taken from Python, and compared with others."""

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
from graphmamba.data.custom.options import DataOptions, DataSource
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
    """Open the experiment's graphs; own ones tell it their columns, task and names.

    Args:
        experiment: Which graphs, and which columns its model reads.
        data_dir: Where sets are kept; None for the default place.
        draws_split: Whether custom graphs get a part where their files do not say which.
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
            raise UserError("data.path must name a folder, .npz or .csv of graphs, got ''")
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
    """Open custom graphs, and choose model and training by them.

    Args:
        data: Where they are, and how they are read.
        size: Of the model.
        given: What the user has said, by dotted key; all else is chosen.
        data_dir: Where sets are kept; None for the default place.
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
    """Make a model's experiment about these graphs, and compute the columns that it reads.

    Args:
        graphs: Graphs with `x`, `edge_index`, perhaps `edge_attr`, labels `y`, and perhaps their
            part as a word in `split`, or masks of their nodes; in a list, a data set of PyG, a
            `DataLoader` or a `Batch`, or one graph by itself. Or graphs of networkx, whose
            attributes are features.
        experiment: Model and training; None chooses them by the graphs.
        options: What labels are, and how graphs or nodes that name no part are split; None reads it
            off the graphs.
        size: Size of the model that is chosen, where no experiment is given.
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
    """What the owner of custom graphs in files calls them; None where they are numbered."""
    own = experiment.data
    return read_unlabelled(own.path, own.options.undrawn) if own is not None and own.path else None


def with_statistics(experiment: Experiment, store: GraphStore) -> Experiment:
    """Tell an experiment what the training labels of custom graphs are like, where it is known."""
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
"""Numbers of each channel and layer that a step on a whole graph keeps, measured on the CPU; scores
keep those of one layer at most."""
DRAWN = 10, 512
"""Neighbours of a node, and nodes or pairs of a batch, where a graph does not fit."""


def in_parts(
    experiment: Experiment, store: GraphStore, device: torch.device
) -> tuple[Experiment, GraphStore]:
    """Learn one graph whole if a step on it fits into memory, else by neighbours of its nodes.

    Scores are those of the whole graph as long as its layers fit one by one. Ranks among all nodes
    need it in any case.

    Args:
        experiment: Says by `train.neighbours` if that is to be decided.
        store: Graphs on the CPU.
        device: Where they are learned.

    Returns:
        The experiment with what was decided, and the graphs, on the device or sent to it.
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
    """Whether a graph fits into half of the free memory, with what so many layers make of it."""
    nodes, edges = (int(store.tables[kind].ptr[-1]) for kind in ("nodes", "edges"))
    numbers = experiment.model.channels * layers * (PER_NODE * nodes + PER_EDGE * edges)
    return 4 * numbers <= ROOM * free_memory(device)


READ = {
    *("x", "edge_index", "edge_attr", DESCRIPTORS, LINKS, "edge_label", "y"),
    *(NODE_SPLIT, PAIR_SPLIT),
}
"""Columns that come from files; others are computed of these."""


def identity_of(experiment: Experiment, store: GraphStore) -> str:
    """Fingerprint of custom graphs; empty for benchmarks, whose name says which they are."""
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
    """Reject graphs that are not those of the training, as far as that is known.

    Args:
        experiment: Says whether the graphs are in files or were given from Python.
        known: What the run has written down; nothing where it is older than this.
        found: The identity of the graphs at hand.
        use: What to do about it.
    """
    if known and found and known != found:
        is_in_files = experiment.data is not None and experiment.data.path
        rule = "data.path must hold the graphs" if is_in_files else "graphs must be those"
        raise UserError(
            f"{rule} of the training, with the same parts and labels, got others: {use}"
        )

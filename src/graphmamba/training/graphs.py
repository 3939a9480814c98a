"""The graphs of an experiment: opened, taken from Python, and told from others."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from graphmamba.checks import check_is
from graphmamba.data.custom.networkx import Graphs
from graphmamba.data.custom.open import Unlabelled, open_custom, read_graphs, read_unlabelled
from graphmamba.data.custom.options import DataOptions, DataSource
from graphmamba.data.datasets.sources import open_with_columns
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS
from graphmamba.data.transforms.precompute import add_precomputed
from graphmamba.errors import UserError
from graphmamba.nn.model import columns_read
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
    data = experiment.data.described(found.features, found.task, found.names)
    experiment = replace(experiment, data=data)
    experiment.check_loss()
    return experiment, found.store


def take_graphs(
    graphs: Graphs,
    experiment: Experiment | None = None,
    options: DataOptions | None = None,
) -> tuple[Experiment, GraphStore]:
    """Make a model's experiment about these graphs, and compute the columns that it reads.

    Args:
        graphs: Graphs with `x`, `edge_index`, perhaps `edge_attr`, labels `y`, and perhaps their
            part as a word in `split`; in a list, a data set of PyG, a `DataLoader` or a `Batch`. Or
            graphs of networkx, whose attributes are features.
        experiment: Model and training; None for Graph-Mamba with its defaults.
        options: What labels are, and how graphs that name no part are split; None reads it off
            the graphs.
    """
    experiment, options = experiment or Experiment(), options or DataOptions()
    check_is("experiment", experiment, Experiment, "load_experiment reads one by its name")
    check_is("options", options, DataOptions)
    found = read_graphs(graphs, options)
    data = DataSource.of(options).described(found.features, found.task, found.names)
    data = replace(data, columns=found.feature_names)
    experiment = replace(experiment, data=data, split_sizes=None)
    experiment.check_loss()
    columns = add_precomputed(found.columns, columns_read(experiment.model, experiment.encoder))
    return experiment, GraphStore(columns)


def names_in(experiment: Experiment) -> Unlabelled | None:
    """What the owner of custom graphs in files calls them; None where they are numbered."""
    own = experiment.data
    return read_unlabelled(own.path, own.options.undrawn) if own is not None and own.path else None


READ = {"x", "edge_index", "edge_attr", LINKS, "edge_label", "y"}
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

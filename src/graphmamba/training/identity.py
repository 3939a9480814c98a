"""Which graphs a run was trained on: own files can change between training and later use."""

from hashlib import sha256

from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment

READ = {"x", "edge_index", "edge_attr", LINKS, "edge_label", "y"}
"""Columns that come from files; others are computed of these."""


def identity_of(experiment: Experiment, store: GraphStore) -> str:
    """Tell own graphs from others; empty for benchmarks, which are known by their recipe."""
    if experiment.own is None:
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
    """Refuse graphs that are not those of the training, as far as that is known.

    Args:
        experiment: Says whether the graphs are in files or were given from Python.
        known: What the run has written down; nothing where it is older than this.
        found: The identity of the graphs at hand.
        use: What to do about it.
    """
    if known and found and known != found:
        is_in_files = experiment.own is not None and experiment.own.path
        rule = "own.path must hold the graphs" if is_in_files else "graphs must be those"
        raise UserError(
            f"{rule} of the training, with the same parts and labels, got others: {use}"
        )

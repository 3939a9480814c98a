"""The graphs of an experiment, with the columns that its model reads."""

from dataclasses import replace
from pathlib import Path

from graphmamba.checks import check_is
from graphmamba.data.custom.open import open_own
from graphmamba.data.custom.options import OwnSource
from graphmamba.data.datasets.sources import open_with_columns
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.nn.model import columns_read
from graphmamba.training.experiment import Experiment


def open_data(
    experiment: Experiment, root: Path | None = None, *, draws_split: bool = True
) -> tuple[Experiment, GraphStore]:
    """Open the experiment's graphs; own ones tell it their columns, task and names.

    Args:
        experiment: Which graphs, and which columns its model reads.
        root: Where sets are kept; None for the default place.
        draws_split: Whether own graphs get a part where their files do not say which.
    """
    check_is("experiment", experiment, Experiment, "load_experiment reads one by its name")
    asked = columns_read(experiment.model, experiment.encoder)
    if experiment.own is None:
        experiment.check_loss()
        return experiment, open_with_columns(
            experiment.benchmark, asked, root, sizes=experiment.sizes
        )
    _check_path(experiment.own)
    options = experiment.own.options
    found = open_own(experiment.own.path, options, root, draws_split=draws_split)
    found = found.with_columns(asked)
    own = experiment.own.described(found.features, found.task, found.names)
    experiment = replace(experiment, own=own)
    experiment.check_loss()
    return experiment, found.store


def _check_path(own: OwnSource) -> None:
    """Refuse graphs that lie nowhere; an empty path would mean the folder one happens to be in."""
    if own.path:
        return
    if own.task is None:
        raise UserError("own.path must name a folder, .npz or .csv of graphs, got ''")
    raise UserError(
        "own.path must name the graphs, and the model was trained on graphs given from Python: "
        "give others to evaluate or predict with --input, "
        "and resume from Python, with fit(*take_graphs(graphs), folder=..., resume=True)"
    )

"""A list of PyG graphs -> an experiment and a store, ready for `fit`."""

from dataclasses import replace

from graphmamba.checks import check_is
from graphmamba.data.custom.options import OwnOptions, OwnSource, check_read
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.from_pyg import Graphs
from graphmamba.data.splits import draw_split
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import add_precomputed
from graphmamba.nn.model import columns_read
from graphmamba.training.experiment import Experiment


def take_graphs(
    graphs: Graphs,
    experiment: Experiment | None = None,
    options: OwnOptions | None = None,
) -> tuple[Experiment, GraphStore]:
    """Make a model's experiment about these graphs, and compute the columns that it reads.

    Args:
        graphs: Graphs with `x`, `edge_index`, perhaps `edge_attr`, labels `y`, and perhaps their
            part as a word in `split`; in a list, a `DataLoader` or a `Batch`.
        experiment: Model and recipe; None for Graph-Mamba with its defaults.
        options: What labels are, and how graphs that name no part are split; None reads it off
            the graphs.

    Example:
        >>> result = fit(*take_graphs(graphs))  # doctest: +SKIP
    """
    experiment, options = experiment or Experiment(), options or OwnOptions()
    check_is("experiment", experiment, Experiment, "load_experiment reads one by its name")
    check_is("options", options, OwnOptions)
    check_read(options, "graphs", "graphs")
    found = from_graphs(graphs, options.rule, options.level)
    own = OwnSource.of(options).described(found.features, found.task, found.names)
    experiment = replace(experiment, own=own, sizes=None)
    experiment.check_loss()
    columns = add_precomputed(found.columns, columns_read(experiment.model, experiment.encoder))
    split = columns.split
    if split is None:
        split = draw_split(len(columns.node_ptr) - 1, options.fractions, options.split_seed)
    return experiment, GraphStore(replace(columns, split=split))

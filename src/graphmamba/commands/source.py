"""Which model a command is about, and which graphs."""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.data.catalog import (
    MOLECULES,
    Features,
    Level,
    PredictionKind,
    Task,
    features_in_words,
    task_in_words,
)
from graphmamba.data.custom.labels import numbers_of
from graphmamba.data.custom.options import (
    DataOptions,
    DataSource,
    check_names,
    check_read,
    format_of,
    only_read,
)
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import DESCRIPTORS, GraphColumns
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, TrainConfig
from graphmamba.training.graphs import check_same_graphs, identity_of
from graphmamba.training.predict import Predictor, load, load_pretrained

ALL = "all"
"""What a split is called that holds every graph."""


def load_model(checkpoint: str | None, pretrained: str | None, weights: str | None) -> Predictor:
    """Read the model that is meant; words that name none, or two, are rejected."""
    if weights is not None and pretrained is None and checkpoint is not None:
        raise UserError(
            f"--weights must be given for --pretrained alone, got '{weights}' beside '{checkpoint}'"
        )
    if checkpoint is not None and pretrained is not None:
        raise UserError(
            "only one of a run folder or file of weights and --pretrained may be given, "
            f"got '{checkpoint}' and '{pretrained}'"
        )
    if pretrained is not None:
        return load_pretrained(pretrained, weights)
    if checkpoint is None:
        raise UserError(
            "either a run folder or file of weights, or --pretrained, must be given, got none"
        )
    return load(checkpoint)


def options_of(trained: Predictor, label: tuple[str, ...] = ()) -> DataOptions:
    """How graphs like those that a model was trained on are read: labels mean what they did.

    Args:
        trained: The model.
        label: Label columns of the files; none for those of the training.
    """
    own, task = trained.experiment.data, trained.model.task
    kind = task.kind
    options = own.options.undrawn if own else DataOptions()
    if kind != "link":
        # few graphs may hold few of the classes, and targets that happen to be whole
        known = own.class_names if own else task.classes or None
        options = replace(options, task=kind, classes=known if task.classes else None)
    names = () if task.classes else trained.names
    if any(name in names and names.index(name) != place for place, name in enumerate(label)):
        raise UserError(
            f"target must name the columns in the order of the model's, {', '.join(names)}; "
            f"got {', '.join(label)}"
        )
    return replace(options, target=label) if label else options


def on_other_data(
    trained: Predictor,
    dataset: str | None,
    input_: str | None,
    label: tuple[str, ...] = (),
) -> Experiment:
    """The model's experiment with the graphs that a user names, or its own.

    Args:
        trained: The model.
        dataset: A benchmark data set by its name.
        input_: Custom graphs by their path.
        label: Their target columns; none for those of the training.
    """
    if dataset is not None and input_ is not None:
        raise UserError("only one of --dataset and --input must be given, got both")
    if label and input_ is None:
        raise UserError(f"target must be given for an --input alone, got {', '.join(label)}")
    experiment = trained.experiment
    if dataset is not None:
        other = replace(
            experiment, dataset=dataset, split_sizes=None, data=None, train=TrainConfig()
        )
        check_fits(trained, other)
        return other
    if input_ is None:
        return experiment
    task = trained.model.task
    kind = format_of(Path(input_))
    if kind is not None:
        check_read(DataOptions(target=label), kind, input_)
    options = options_of(trained, label)
    if kind is not None:
        # the graphs of the training may have come in another format
        options = only_read(options, kind)
    options = replace(options, level=options.level or task.level)
    check_names(Path(input_), options.targets, names_known(trained))
    own = DataSource.of(options, str(Path(input_)))
    # whether labels fit is for `check_fits` to say, when they have been read
    return replace(experiment, split_sizes=None, data=own, train=TrainConfig())


def names_known(trained: Predictor) -> tuple[str, ...]:
    """Feature columns of the custom graphs that a model was trained on, where they had names."""
    own = trained.experiment.data
    return own.columns if own else ()


def check_fits(trained: Predictor, experiment: Experiment) -> None:
    """Reject graphs whose columns or labels the model does not know.

    How right and wrong are measured is the model's to say: a folder of classes fits whatever
    metric of classes it was trained by.
    """
    data, model = experiment.dataset_info, trained.model
    is_read = _read_by(model.features, data.features) == model.features
    if not is_read or _answers(data.task) != _answers(model.task):
        raise UserError(
            f"graphs of {data.title} must have the columns and labels of the model, "
            f"{features_in_words(model.features)} and {task_in_words(model.task)}, "
            f"got {features_in_words(data.features)} and {task_in_words(data.task)}"
        )


def _read_by(wanted: Features, found: Features) -> Features:
    """What a model sees of columns: one that reads none of edges takes graphs that have some."""
    return replace(found, edges="none", edge_columns=0) if wanted.edges == "none" else found


def _answers(task: Task) -> tuple[Level, PredictionKind, int]:
    """What labels are; two classes are so whether a model tells them by one number or two."""
    return task.level, task.kind, task.classes or task.outputs


def part_asked(split: str | None, input_: str | None) -> str:
    """The part that is meant: by default test, and all of an input."""
    default = "test" if input_ is None else ALL
    part = default if split is None else split
    check_choice("split", part, (*SPLITS, ALL))
    return part


def graphs_of(store: GraphStore, part: str, where: str) -> Int[Tensor, " graphs"]:
    """Graphs of a part; a part that files do not tell, or that holds none, is rejected."""
    if part == ALL:
        return torch.arange(len(store))
    if store.split is None and not store.is_transductive:
        raise UserError(
            f"{where} must say in `split` which part each graph is in where one part of it is "
            "asked for, got no such column"
        )
    ids = store.split_ids(part)
    if not len(ids):
        raise UserError(f"split must be a part of {where} that holds graphs, got '{part}'")
    return ids


def check_parts(trained: Predictor, experiment: Experiment, store: GraphStore) -> None:
    """Reject custom graphs that have changed since the training: their parts are others now."""
    use = "name them by --input, and a part by --split"
    check_same_graphs(experiment, trained.graphs, identity_of(experiment, store), use)


def check_features(trained: Predictor, columns: GraphColumns, where: str) -> None:
    """Reject graphs to predict whose columns the model does not know."""
    wanted = trained.model.features
    found = numbers_of(columns) if columns.nodes["x"].is_floating_point() else MOLECULES
    if DESCRIPTORS in columns.graphs:
        found = replace(found, graph_columns=columns.graphs[DESCRIPTORS].shape[1])
    if _read_by(wanted, found) != wanted:
        raise UserError(
            f"{where} must have the columns of {trained.experiment.dataset_info.title}, which the "
            f"model was trained on: {features_in_words(wanted)}; got {features_in_words(found)}"
        )

"""`graphmamba evaluate` and `graphmamba predict`."""

import json as json_format
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.commands.printing import say, scores_table
from graphmamba.data.catalog import Features, features_in_words, task_in_words
from graphmamba.data.custom.labels import CustomGraphs
from graphmamba.data.custom.open import check_feature_names, read_unlabelled
from graphmamba.data.custom.options import (
    DataOptions,
    DataSource,
    check_read,
    format_of,
    names_given,
    only_read,
)
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.environment import resolve_device
from graphmamba.errors import UserError
from graphmamba.training.evaluate import labels_per_graph
from graphmamba.training.experiment import DeviceName, Experiment, TrainConfig
from graphmamba.training.graphs import check_same_graphs, identity_of, names_in, open_data
from graphmamba.training.predict import (
    BUDGET,
    Predictions,
    Predictor,
    load,
    load_pretrained,
    scorer_of,
    write_predictions,
)
from graphmamba.training.progress import bar
from graphmamba.training.run_dir import RunDir, json_numbers

ALL = "all"
"""Name of the split with all graphs."""
NAME_THEM = "name them by --input, and a part by --split"
"""Advice where custom graphs have changed since the training, since their split has too."""


def evaluate(
    checkpoint: str | None = None,
    *,
    dataset: str | None = None,
    input_: str | None = None,
    target: list[str] | str | None = None,
    split: str | None = None,
    pretrained: str | None = None,
    weights: str | None = None,
    device: DeviceName = "auto",
    data_dir: str | None = None,
    json: bool = False,
) -> None:
    """Score a trained model on a split, by the metrics of its task.

    It computes as in training, so that on the same device the scores are those of the run; scores
    stored with the weights are shown beside them.

    Args:
        checkpoint: The directory of a run, or a file of weights.
        dataset: Score on this benchmark data set, which needs the same features and targets.
        input_: Score on your own labelled graphs: a folder or file, as for `graphmamba
            train`.
        target: Target column of the input, or several as one,two or [one, two]; default: as in
            training. For a model of a benchmark, classes are numbers from 0.
        split: train, validation, test or all; default: test, and all graphs of an input. Files of
            an input need a `split` for the others.
        pretrained: DATASET or DATASET/MODEL: use weights shipped with the package.
        weights: Directory of such weights; default: $GRAPHMAMBA_WEIGHTS or the package's own.
        device: auto uses a GPU if there is one.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        json: Print one JSON object instead of a table.
    """
    part = part_asked(split, input_)
    place = resolve_device(device)
    trained = load_model(checkpoint, pretrained, weights)
    labels = names_given(target or "", "--target")
    experiment = on_other_data(trained, dataset, input_, labels)
    sets = Path(data_dir) if data_dir else None
    experiment, store = open_data(experiment, sets, draws_split=input_ is None)
    check_fits(trained, experiment)
    if input_ is None:
        check_same_graphs(experiment, trained.graphs, identity_of(experiment, store), NAME_THEM)
    title = experiment.dataset_info.title
    ids = graphs_of(store, part, title)
    # those without a label are read, and not scored
    of = None if part == ALL else part
    count = int((labels_per_graph(store, experiment.dataset_info.task.level, of)[ids] > 0).sum())
    if not count:
        raise UserError(f"{title} must hold labels, and its graphs have none ({len(ids)})")
    scorer = scorer_of(trained, store, place)
    with bar("evaluating") as tell:
        scores = scorer.score(of or torch.arange(len(scorer.store.scored)), tell)
    is_same = dataset is None and input_ is None
    reported = trained.reported.get(part, {}) if is_same else {}
    if json:
        told = {
            "checkpoint": str(trained.path),
            "data": title,
            "split": part,
            "graphs": count,
            **json_numbers(scores),
            **({"reported": json_numbers(reported)} if reported else {}),
        }
        sys.stdout.write(json_format.dumps(told, indent=2, allow_nan=False) + "\n")
    else:
        counted = f"graphs scored: {count:,}"
        if store.is_transductive and experiment.dataset_info.task.level == "node":
            counted = f"nodes scored: {int(labels_per_graph(store, 'node', of).sum()):,}"
        heading = f"{trained.path} on {title}, {counted}"
        rows = {part: scores} | ({f"{part}, reported": reported} if reported else {})
        say(scores_table(heading, rows))


def predict(
    checkpoint: str | None = None,
    *,
    input_: str | None = None,
    output: str = "predictions.csv",
    dataset: str | None = None,
    split: str | None = None,
    pretrained: str | None = None,
    weights: str | None = None,
    device: DeviceName = "auto",
    budget: int = BUDGET,
    std: bool = True,
    data_dir: str | None = None,
) -> None:
    """Write predictions of a trained model to a CSV file, with their std over random node orders.

    Args:
        checkpoint: The directory of a run, or a file of weights.
        input_: Your graphs: a folder or file, as for `graphmamba train`; targets may be missing.
            Default: the test split of the training data.
        output: CSV file to write.
        dataset: Predict this benchmark data set instead.
        split: train, validation, test or all; default: test, and all graphs of an input. Files of
            an input need a `split` for the others.
        pretrained: DATASET or DATASET/MODEL: use weights shipped with the package.
        weights: Directory of such weights; default: $GRAPHMAMBA_WEIGHTS or the package's own.
        device: auto uses a GPU if there is one.
        budget: Most nodes and edges per batch; a smaller one takes less memory.
        std: Compute the column std, which takes further forward passes.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
    """
    part = part_asked(split, input_)
    place = resolve_device(device)
    trained = load_model(checkpoint, pretrained, weights).to(place)
    path, own = Path(output), trained.experiment.data
    if path.is_dir():
        raise UserError(f"output must be a file, got the folder '{path}'")
    graphs = [Path(each) for each in (input_, own and own.path) if each]
    inside = [file for folder in graphs if folder.is_dir() for file in folder.iterdir()]
    for file in (*graphs, *inside, trained.path, *RunDir(trained.path.parent).files):
        if path.exists() and file.exists() and path.samefile(file):
            raise UserError(
                f"output must not be a file that is read or that a run wrote, got '{path}'"
            )
    named: CustomGraphs | None
    if input_ is not None and dataset is None:
        known = own.columns if own else ()
        named = read_unlabelled(input_, options_of(trained), known, has_split=part != ALL)
        wanted, found = trained.model.features, named.features
        if _read_by(wanted, found) != wanted:
            title = trained.experiment.dataset_info.title
            raise UserError(
                f"{input_} must have the columns of {title}, which the model was trained on: "
                f"{features_in_words(wanted)}; got {features_in_words(found)}"
            )
        store = GraphStore(named.columns)
        ids = graphs_of(store, part, input_)
    else:
        experiment = on_other_data(trained, dataset, input_)
        experiment, store = open_data(experiment, Path(data_dir) if data_dir else None)
        if input_ is None and part != ALL:
            check_same_graphs(experiment, trained.graphs, identity_of(experiment, store), NAME_THEM)
        ids = graphs_of(store, part, experiment.dataset_info.title)
        named = names_in(experiment)
    names: dict[str, Any] = {}
    if named is not None:
        names = {"graph_name": named.graph_name, "node_name": named.node_name}
    # of a split nobody expects the rows of the file
    skipped = [each.row for each in named.skipped] if named and part == ALL else []
    with bar("predicting") as tell:

        def followed() -> Iterator[Predictions]:
            done = 0
            for part in trained.stream(store, ids, has_std=std, budget=budget):
                yield part
                done += len(part.graph.unique())
                tell(done, len(ids))

        rows = write_predictions(path, followed(), skipped=skipped, **names)
    told = f", {len(skipped):,} of them empty: RDKit rejects their SMILES" if skipped else ""
    say(f"{rows:,} {'row' if rows == 1 else 'rows'} written to {path}{told}")


def load_model(checkpoint: str | None, pretrained: str | None, weights: str | None) -> Predictor:
    """Load the named model; none, or two, are rejected."""
    if checkpoint is not None and (pretrained is not None or weights is not None):
        given = "--weights" if pretrained is None else "--pretrained"
        raise UserError(f"{given} must be left out beside '{checkpoint}', got both")
    if pretrained is not None:
        return load_pretrained(pretrained, weights)
    if checkpoint is None:
        raise UserError(
            "either a run folder or file of weights, or --pretrained, must be given, got none"
        )
    return load(checkpoint)


def options_of(trained: Predictor, label: tuple[str, ...] = ()) -> DataOptions:
    """Reading options for graphs like those of the training; `label` names their target columns."""
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
    """The experiment of the model, with the data set that the user names, if any."""
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
    own = DataSource.of(options, str(Path(input_)))
    # whether labels fit is for `check_fits` to say, when they have been read
    return replace(experiment, split_sizes=None, data=own, train=TrainConfig())


def check_fits(trained: Predictor, experiment: Experiment) -> None:
    """Reject graphs whose features or labels do not fit the model.

    Loss and metric are those of the model and need not agree.
    """
    data, model, own = experiment.dataset_info, trained.model, trained.experiment.data
    if experiment.data is not None and own is not None:
        check_feature_names(experiment.data.columns, own.columns, experiment.data.path)
    is_read = _read_by(model.features, data.features) == model.features
    # two classes are so whether a model tells them by one number or two
    found, wanted = (
        (task.level, task.kind, task.classes or task.outputs) for task in (data.task, model.task)
    )
    if not is_read or found != wanted:
        raise UserError(
            f"graphs of {data.title} must have the columns and labels of the model, "
            f"{features_in_words(model.features)} and {task_in_words(model.task)}, "
            f"got {features_in_words(data.features)} and {task_in_words(data.task)}"
        )


def _read_by(wanted: Features, found: Features) -> Features:
    """The features that a model reads: one without edge features accepts graphs that have some."""
    return replace(found, edges="none", edge_columns=0) if wanted.edges == "none" else found


def part_asked(split: str | None, input_: str | None) -> str:
    """The split: by default test, and all graphs of an input."""
    default = "test" if input_ is None else ALL
    part = default if split is None else split
    check_choice("split", part, (*SPLITS, ALL))
    return part


def graphs_of(store: GraphStore, part: str, where: str) -> Int[Tensor, " graphs"]:
    """Indices of the graphs of a split; an undefined or empty one is rejected."""
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

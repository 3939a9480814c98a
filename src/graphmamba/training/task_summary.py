"""The first lines of a run: the inferred task, and notes on what may be meant otherwise."""

import re
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from graphmamba.data.catalog import Task
from graphmamba.data.custom.labels import are_targets
from graphmamba.data.custom.options import DataSource
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import owner_of
from graphmamba.training.evaluate import labels_per_graph
from graphmamba.training.experiment import Experiment
from graphmamba.training.graphs import labels_in
from graphmamba.training.metrics import metric_title

SHOWN = 8
"""Most classes, labels or targets named in a line."""
LONGEST = 24
"""Most characters of a name."""
MANY_CLASSES = 20
"""Numbers of so many classes at most are taken for classes without a note."""
WHOLE = re.compile(r"-?\d+")


def understood(experiment: Experiment, store: GraphStore) -> tuple[str, ...]:
    """Describe the task; for custom graphs also notes on what may be meant otherwise.

    Such as `task: node classification, 2 classes (a 12, b 9), metric accuracy, 9/6/6 nodes`.
    """
    task, data = experiment.dataset_info.task, experiment.data
    metric = metric_title(task.metric)
    if data is None:
        sizes = "/".join(str(len(store.split_ids(split))) for split in SPLITS)
        labels = f"{task.classes} classes, " if task.classes else ""
        return (f"task: {task.in_words}, {labels}metric {metric}, {sizes} graphs",)
    if task.level == "link":
        counts = [
            labels_per_graph(store, "link", split)[store.split_ids(split)] for split in SPLITS
        ]
        sizes = "/".join(str(int(each.sum())) for each in counts)
        return (f"task: {task.in_words}, metric {metric}, {sizes} pairs",)
    splits = [labels_in(store, task.level, split) for split in SPLITS]
    y = store.tables[f"{task.level}s"].given("y").cpu()
    sizes = "/".join(str(int(_is_labelled(each).sum())) for each in splits)
    missing = int((~_is_labelled(y)).sum())
    told = f"task: {task.in_words}, {_labels(task, data.class_names, y)}, metric {metric}, "
    told += f"{sizes} {task.level}s" + (f", {missing} without label" if missing else "")
    return (told, *_untrained(task, data.class_names, splits[0]), *_notes(task, data, store, y))


def _is_labelled(y: Tensor) -> Bool[Tensor, " rows"]:
    return (~y.isnan()).any(dim=1) if y.is_floating_point() else y >= 0


def _labels(task: Task, names: Sequence[str], y: Tensor) -> str:
    """Number of classes, labels or targets, and a statistic of each."""
    if task.kind == "classes":
        counts = y[y >= 0].bincount(minlength=task.classes).tolist()
        parts, what = [f"{count:,}" for count in counts], "classes"
    elif task.kind == "multi-label":
        known = ~y.isnan()
        parts = [
            f"{int((column == 1).sum()):,} of {int(is_known.sum()):,}"
            for column, is_known in zip(y.T, known.T, strict=True)
        ]
        what = "labels" if len(parts) > 1 else "label"
    else:
        columns = [column[~column.isnan()].double() for column in y.T]
        parts = [
            f"{float(each.mean()):.4g} ± {float(each.std(correction=0)):.4g}"
            if len(each)
            else "none"
            for each in columns
        ]
        what = "targets" if len(parts) > 1 else "target"
    told = [f"{_short(name)} {part}" for name, part in zip(names, parts, strict=True)]
    dots = ", ..." if len(told) > SHOWN else ""
    return f"{len(parts)} {what} ({', '.join(told[:SHOWN])}{dots})"


def _untrained(task: Task, names: Sequence[str], y: Tensor) -> Iterator[str]:
    if task.kind == "classes":
        counts = y[y >= 0].bincount(minlength=task.classes).tolist()
        absent = [_short(name) for name, count in zip(names, counts, strict=True) if not count]
        if absent:
            dots = ", ..." if len(absent) > SHOWN else ""
            yield (
                f"note: {len(absent)} of {task.classes} classes have no label in training: "
                f"{', '.join(absent[:SHOWN])}{dots}"
            )


def _notes(task: Task, data: DataSource, store: GraphStore, y: Tensor) -> Iterator[str]:
    if task.kind == "regression" and data.task is None and y.shape[1] == 1:
        known = y[~y.isnan()]
        values, counts = known.unique(return_counts=True)
        if bool((known == known.round()).all()) and are_targets(
            dict(zip(values.long().tolist(), counts.tolist(), strict=True))
        ):
            yield (
                f"note: {len(values):,} different whole numbers, most of which occur once or leave "
                "many out, are read as targets; --data.task classes reads them as classes"
            )
    if (
        task.kind == "classes"
        and (data.task, data.classes) == (None, None)
        and task.classes > MANY_CLASSES
        and all(WHOLE.fullmatch(name) for name in data.class_names)
    ):
        yield (
            f"note: {task.classes:,} different whole numbers are read as classes; "
            "--data.task regression reads them as targets"
        )
    nodes = store.tables["nodes"]
    if "x" not in nodes.columns or not nodes.columns["x"].dtype.is_floating_point:
        return
    features = nodes.given("x").cpu()
    is_constant = (features == features[:1]).all(dim=0)
    if features.shape[1] > 1 and bool(is_constant.any()):
        yield f"note: {int(is_constant.sum())} of {features.shape[1]} node features are constant"
    table = store.tables[f"{task.level}s"]
    labels = table.given("y").cpu()
    if task.level == "graph":
        labels = labels[owner_of(torch.from_numpy(nodes.ptr))]
    labels = labels if labels.dim() == 2 else labels[:, None]  # noqa: PLR2004
    for name, column in zip(data.class_names, labels.T, strict=False):
        # classes by their numbers, as they may stand among the features
        known = column >= 0 if task.kind == "classes" else ~column.isnan()
        is_same = (features[known] == column[known, None]).all(dim=0) & ~is_constant
        if task.classes == 2:  # noqa: PLR2004 - and which one is 1 depends on their names
            is_same |= (features[known] == 1 - column[known, None]).all(dim=0) & ~is_constant
        if bool(known.any()) and bool(is_same.any()):
            what = "the class" if task.kind == "classes" else f"the target {_short(name)}"
            yield (
                f"note: node feature {int(is_same.nonzero()[0])} (from 0) equals {what} in every "
                "row: leave it out if it is not known beforehand"
            )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."

"""Labels, as text or numbers: the inferred task, and classes or targets as tensors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_least, check_types
from graphmamba.data.catalog import Features, Level, LossName, MetricName, Task, TaskKind
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

LARGEST = float(torch.finfo(torch.float32).max)
LEAST_CLASSES = 2  # a single class cannot be learned
MOST_CLASSES = 1000
"""More different integers than this are regression targets; so many words are an error."""
FEW = 20
"""Up to so many different integers are classes. Up to this class gaps are accepted, since a small
data set may lack some."""
MANY = 100  # more different integers than this are regression targets if most occur once
WHOLE = re.compile(r"(-?\d{1,18})(\.0*)?")
"""An integer, perhaps as `1.0`, which pandas writes where values are missing."""
Where = Callable[[int], str]  # name of a row in messages: file and line
MISSING = frozenset({"nan", "n/a", "<na>", "null"})  # words for a missing label
MISSING_NUMBERS = MISSING | {"na", "none", "?", "-"}  # words for a missing number
YES, NO = frozenset({"true", "yes", "t", "y"}), frozenset({"false", "no", "f", "n"})
"""Binary labels as words, in multi-label columns."""
ANSWERS: tuple[tuple[int, ...], ...] = ((0, 1), (-1, 1))  # pairs of numbers that are binary labels
MEASURES: dict[TaskKind, tuple[LossName, MetricName]] = {
    "classes": ("cross_entropy", "accuracy"),
    "multi-label": ("binary_cross_entropy", "average_precision"),
    "regression": ("l1", "mean_absolute_error"),
}
LINK_TASK = Task("link", 0, "link_cross_entropy", "mrr")


@dataclass(frozen=True)
class LabelRule:
    """Options for the labels; what is left out is inferred from the values."""

    task: TaskKind | None = None
    """Kind of the labels."""
    classes: int | tuple[str, ...] | None = None
    """Number of classes, or their names in order."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.classes is None:
            return
        if self.task not in (None, "classes"):
            raise UserError(
                f"classes must be left out where task={self.task!r}, got {self.classes!r}"
            )
        if isinstance(self.classes, int):
            check_least("classes", self.classes, LEAST_CLASSES)
        elif len(set(self.classes)) < max(len(self.classes), LEAST_CLASSES):
            raise UserError(
                f"classes must be {LEAST_CLASSES} different names at least, got {self.classes!r}"
            )

    @property
    def kind(self) -> TaskKind | None:
        """Kind of the labels; None to infer it."""
        return self.task if self.classes is None else "classes"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the given classes."""
        if isinstance(self.classes, int):
            return tuple(map(str, range(self.classes)))
        return self.classes or ()


@dataclass(frozen=True)
class Labels:
    """Labels of all rows. A row without a label has class -1, or NaN."""

    kind: TaskKind
    values: Tensor  # integers [rows] for classes, otherwise floats [rows, columns]
    names: tuple[str, ...]  # names of the classes, or of the columns


def are_targets(counts: Mapping[int, int]) -> bool:
    """Whether integers, given with their counts, are regression targets and not classes.

    They are if most occur once and they are many or skip most numbers, or if hardly any is
    repeated: a class cannot be learned from one example.
    """
    different = len(counts)
    few_repeat = 2 * sum(count == 1 for count in counts.values()) > different
    hardly_any_repeats = different > FEW and 4 * sum(counts.values()) < 5 * different
    return (
        different > MOST_CLASSES
        or hardly_any_repeats
        or (few_repeat and (_have_gaps([*counts]) or different > MANY))
    )


def _have_gaps(found: Sequence[int]) -> bool:
    highest = max(found, default=0)
    return highest >= FEW and 2 * len(found) < highest + 1


def parse_number(cell: str, or_else: float) -> float:
    """Parse a number; unlike Python, reject `1_000`."""
    try:
        return or_else if "_" in cell else float(cell)
    except ValueError:
        return or_else


def read_labels(columns: Mapping[str, Sequence[str]], rule: LabelRule, where: Where) -> Labels:
    """Read target columns of a file; an empty cell is no label.

    One column of words or integers is classes, unless most integers occur only once. Several binary
    columns are multi-label. Everything else is regression, unless the rule says otherwise.
    """
    table = {name: _without_missing(cells, rule.names) for name, cells in columns.items()}
    if len(table) > 1 and rule.task in (None, "multi-label"):
        table = {name: _answers_as_numbers(cells) for name, cells in table.items()}
    name, cells = next(iter(table.items()))
    # [rows, columns], infinite where there is a word
    values = np.array(
        [[parse_number(c, np.inf) if c else np.nan for c in cells] for cells in table.values()]
    ).T
    kind = rule.kind
    if kind is None and len(table) == 1 and bool((is_word := values[:, 0] == np.inf).any()):
        if bool((~is_word & ~np.isnan(values[:, 0])).any()):
            row = int(is_word.argmax())
            raise UserError(
                f"{where(row)}: {name} must be all numbers or all words, got {cells[row]!r}; "
                "state task='classes' if this is meant"
            )
        kind = "classes"
    is_whole = all(WHOLE.fullmatch(cell) for cell in cells if cell)
    kind = kind or _kind_of(values, is_whole=is_whole)
    if kind != "classes":
        shown = [*table.values()]
        return _numbers(values, kind, tuple(table), rule, where, lambda row, at: shown[at][row])
    if len(table) > 1:
        raise UserError(f"target must be one column where task='classes', got {list(table)}")
    classes = rule.names or _classes_in(name, cells, where)
    # 1.0 is the class 1, unless both are names
    spell = _plain if len(set(map(_plain, classes))) == len(classes) else str
    places = {spell(text): place for place, text in enumerate(classes)} | {"": -1}
    told = f"{name} must be one of {_listed(classes)}"
    return Labels(
        "classes", _placed([spell(cell) for cell in cells], places, told, where, cells), classes
    )


def _classes_in(name: str, cells: Sequence[str], where: Where) -> tuple[str, ...]:
    found = set(cells) - {""}
    is_whole = all(map(WHOLE.fullmatch, found))
    if is_whole and any("." in cell for cell in found):
        found = set(map(_plain, found))
    _check_count(sorted(found), f"{where(0)}: {name}")
    if not is_whole:
        return tuple(sorted(found))
    spelt = sorted(found, key=lambda text: (int(text), text))
    for one, other in pairwise(spelt):
        if int(one) == int(other):
            raise UserError(
                f"{name} must be spelt in one way, got {other!r} beside {one!r}; state the names "
                "of the classes if these are two"
            )
    return tuple(spelt)


def _check_count(found: Sequence[object], what: str) -> None:
    """Reject a single class, and too many."""
    if not found:
        raise UserError(f"{what} must hold a label somewhere, got none")
    if len(found) < LEAST_CLASSES:
        raise UserError(
            f"{what} must hold {LEAST_CLASSES} classes at least, got {found[0]!r} in all rows; "
            "state the classes if there are others"
        )
    if len(found) > MOST_CLASSES:
        raise UserError(
            f"{what} must hold at most {MOST_CLASSES} classes, got {len(found)}; "
            "state task='regression' or the number of classes if this is meant"
        )


def _placed(
    labels: Sequence[Any], places: Mapping[Any, int], told: str, where: Where, cells: Sequence[Any]
) -> Int[Tensor, " rows"]:
    """Number of each label; one without a number is reported as its cell."""
    for row, label in enumerate(labels):
        if label not in places:
            raise UserError(f"{where(row)}: {told}, got {cells[row]!r}")
    return torch.tensor([places[label] for label in labels], dtype=torch.int64)


def _without_missing(cells: Sequence[str], stated: tuple[str, ...]) -> list[str]:
    """Empty the cells with words for a missing label, unless the word is a given class."""
    has_numbers = any(np.isfinite(parse_number(cell, or_else=np.inf)) for cell in cells)
    missing = MISSING_NUMBERS if has_numbers else MISSING
    return [
        "" if cell not in stated and cell.strip().lower() in missing else cell for cell in cells
    ]


def _answers_as_numbers(cells: list[str]) -> list[str]:
    """Replace binary words by 1 and 0, in columns that hold nothing else."""
    words = {cell: cell.strip().lower() for cell in set(cells) - {""}}
    if not all(word in YES | NO for word in words.values()):
        return cells
    return [("1" if words[cell] in YES else "0") if cell else "" for cell in cells]


def _plain(cell: str) -> str:
    """Write 1.0 as 1."""
    found = WHOLE.fullmatch(cell)
    return found[1] if found else cell


def _listed(names: tuple[str, ...], most: int = 6) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (", ..." if len(names) > most else "")


def number_labels(y: Tensor, rule: LabelRule, where: Where) -> Labels:
    """Read labels [rows] or [rows, columns]; NaN is no label, nor is -1 among integers from 0.

    One column of integers is classes by value, unless most occur only once; so are floats that are
    0 and 1, or -1 and +1. Several such binary columns are multi-label. Everything else is
    regression, unless the rule says otherwise.
    """
    y = y[:, None] if y.dim() == 1 else y
    is_bool, is_float = y.dtype == torch.bool, y.is_floating_point()
    values = (y if is_float else y.long()).double().numpy()  # [rows, columns]
    known, found = values, np.unique(values[~np.isnan(values)]).tolist()
    if not is_float and found and found[0] == -1 and found != [-1, 1]:
        # -1 is no label, but beside +1 alone, or other negative numbers
        known, found = np.where(values == -1, np.nan, values), found[1:]
    kind = rule.kind or _kind_of(known, is_whole=not is_float)
    if kind != "classes":
        names = tuple(f"y{column}" for column in range(y.shape[1]))
        values = known if kind == "multi-label" else values
        return _numbers(values, kind, names, rule, where, lambda row, at: y[row, at].item())
    if y.shape[1] != 1:
        raise UserError(f"y must have one column where task='classes', got {y.shape[1]}")
    column = (values if rule.classes else known)[:, 0]
    is_none = np.isnan(column)
    if (is_wrong := ~is_none & ~((abs(column) <= 2**53) & (column == column.round()))).any():
        row = int(is_wrong.argmax())
        raise UserError(f"{where(row)}: y must be a whole number, got {column[row]}")
    number = torch.from_numpy(np.where(is_none, -1, column).astype(np.int64))
    if rule.classes is None:
        classes = [int(value) for value in found]
        _check_count(classes, "y")
        if classes[0] >= 0 and not _have_gaps(classes):
            classes = [*range(classes[-1] + 1)]
        names = ("False", "True") if is_bool else tuple(map(str, classes))
        place = torch.searchsorted(torch.tensor(classes), number)
        return Labels("classes", place.masked_fill(torch.from_numpy(is_none), -1), names)
    names, numbers = rule.names, tuple(map(str, range(len(rule.names))))
    told = f"y must be in 0 to {len(names) - 1}, or -1 for no label"
    if names != numbers and all(map(WHOLE.fullmatch, names)):
        # classes that are numbers other than 0, 1, 2, ... are known by these
        numbers, told = names, f"y must be one of the classes {_listed(names)}"
    places = {-1: -1} | {int(text): place for place, text in enumerate(numbers)}
    labels = number.tolist()
    place = _placed(labels, places, told, where, labels)
    return Labels("classes", place.masked_fill(torch.from_numpy(is_none), -1), names)


def _kind_of(values: Float[np.ndarray, "rows columns"], *, is_whole: bool) -> TaskKind:
    found, counts = (
        each.tolist() for each in np.unique(values[~np.isnan(values)], return_counts=True)
    )
    if values.shape[1] > 1:
        return "multi-label" if any({*found} <= {*pair} for pair in ANSWERS) else "regression"
    if is_whole and not are_targets(dict(zip(map(int, found), counts, strict=True))):
        return "classes"
    return "classes" if tuple(found) in ANSWERS else "regression"


def _numbers(
    values: Float[np.ndarray, "rows columns"],
    kind: TaskKind,
    names: tuple[str, ...],
    rule: LabelRule,
    where: Where,
    shown: Callable[[int, int], object],
) -> Labels:
    """Check binary labels or targets, NaN for none; `shown` gives a cell for messages."""
    if (
        kind == "multi-label"
        and {-1, 1} <= {*np.unique(values).tolist()}
        and not (values == 0).any()
    ):
        values = (values + 1) / 2
    is_none = np.isnan(values)
    is_wrong, told = ~is_none & ~(np.abs(values) <= LARGEST), "a finite number of 32 bits"
    if kind == "multi-label" and not is_wrong.any():
        is_wrong, told = ~is_none & (values != 0) & (values != 1), "0 or 1"
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0].tolist()
        raise UserError(f"{where(row)}: {names[column]} must be {told}, got {shown(row, column)!r}")
    is_empty = is_none.all(axis=0)
    if values.size and (is_empty.all() or (rule.task is None and is_empty.any())):
        empty = tuple(name for name, each in zip(names, is_empty, strict=True) if each)
        raise UserError(f"{where(0)}: {_listed(empty)} must hold a label somewhere, got none")
    return Labels(kind, torch.from_numpy(values).float(), names)


class Skipped(NamedTuple):
    """A row of a file that could not be read as a graph and was left out."""

    row: int  # counted from 0
    where: str  # its name in messages
    text: str


@dataclass(frozen=True, kw_only=True)
class CustomGraphs:
    """Custom graphs without labels, with names."""

    columns: GraphColumns
    features: Features
    feature_names: tuple[str, ...] = ()
    """Names of node, then edge features, such as `nodes/size`; empty if unnamed."""
    graph_names: tuple[str, ...] = ()
    """Names of the graphs; empty if they are numbered."""
    node_names: tuple[str, ...] = ()
    """Names of all nodes, graph by graph; empty if they are numbered."""
    skipped: tuple[Skipped, ...] = ()
    """Rows of the file that were left out; graphs are numbered by their rows nevertheless."""

    def graph_name(self, graph: int) -> str:
        """Name of a graph."""
        return self.graph_names[graph] if self.graph_names else str(graph)

    def node_name(self, graph: int, node: int) -> str:
        """Name of a node."""
        place = int(self.columns.node_ptr[graph]) + node
        return self.node_names[place] if self.node_names else str(node)

    def labelled(self, task: Task, class_names: tuple[str, ...] = ()) -> "CustomData":
        """Return the graphs with labels and task."""
        return CustomData(**vars(self), task=task, class_names=class_names)


@dataclass(frozen=True, kw_only=True)
class CustomData(CustomGraphs):
    """Custom graphs with features, task and class names."""

    task: Task
    class_names: tuple[str, ...] = ()
    """Names of the classes, or of the target columns."""


def numbers_of(columns: GraphColumns) -> Features:
    """Features of float columns."""
    edges = columns.edges.get("edge_attr")
    return Features(
        node_columns=columns.nodes["x"].shape[1],
        edges="none" if edges is None else "numbers",
        edge_columns=0 if edges is None else edges.shape[1],
    )


def task_of(level: Level, labels: Labels) -> Task:
    """Choose loss and metric by the kind of labels."""
    if level == "link":
        return LINK_TASK
    loss, metric = MEASURES[labels.kind]
    is_classes = labels.kind == "classes"
    outputs = len(labels.names) if is_classes else labels.values.shape[1]
    return Task(level, outputs, loss, metric, classes=outputs if is_classes else 0)


@dataclass(frozen=True)
class LabelStatistics:
    """Statistics of the labels of the training split."""

    mean: tuple[float, ...] = ()
    """Mean of each target, if targets are standardised."""
    std: tuple[float, ...] = ()
    """Standard deviation of each target; 1 if constant."""
    counts: tuple[int, ...] = ()
    """Rows of each class, or positive labels of each column."""
    known: tuple[int, ...] = ()
    """Labels of each column of a multi-label task."""

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Weight of each class, rows / (classes x rows of the class); 1 for one without rows."""
        rows, classes = sum(self.counts), len(self.counts)
        return tuple(rows / (classes * count) if count else 1.0 for count in self.counts)

    @property
    def positive_weights(self) -> tuple[float, ...]:
        """Weight of the positive labels of each column, negatives / positives."""
        both = zip(self.counts, self.known, strict=True)
        return tuple((known - count) / count if count else 1.0 for count, known in both)


def label_statistics(y: Tensor, task: Task, *, standardizes: bool = True) -> LabelStatistics | None:
    """Compute the statistics of the training labels; links have none."""
    if task.kind == "classes":
        return LabelStatistics(counts=tuple(y[y >= 0].bincount(minlength=task.classes).tolist()))
    if task.kind == "multi-label":
        positives, known = (y == 1).sum(dim=0), (~y.isnan()).sum(dim=0)
        return LabelStatistics(counts=tuple(positives.tolist()), known=tuple(known.tolist()))
    if task.kind == "link" or not standardizes:
        return None
    mean, std = [], []
    for column in y.double().T:
        values = column[~column.isnan()]
        is_constant = not len(values) or bool((values == values[0]).all())
        mean.append(float(values.mean()) if len(values) else 0.0)
        std.append(1.0 if is_constant else float(values.std(correction=0)))
    return LabelStatistics(mean=tuple(mean), std=tuple(std))

"""Label columns, of words or of numbers -> classes, answers or targets, and the task they make."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_least, check_types
from graphmamba.data.catalog import Features, Level, LossName, MetricName, Task
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

LARGEST = float(torch.finfo(torch.float32).max)
TaskKind = Literal["classes", "regression", "multi-label"]
UNKNOWN = -2
LONGEST = 18
"""Digits of the largest whole number that is read as a class."""
LEAST_CLASSES = 2
"""Of a single class there is nothing to learn."""
MOST_CLASSES = 1000
"""More whole numbers than this are taken for a slip: they are counts, or names of rows."""
FEW = 20
"""Up to this class gaps are no wonder: a small set may lack some."""
WHOLE = re.compile(r"(-?\d+)(\.0*)?")
"""A whole number, with the decimals that pandas gives it where a column has gaps."""
Where = Callable[[int], str]
"""What a message calls a row: its file and line."""
SHOWN = 6
"""Values that a message lists."""
MEASURES: dict[TaskKind, tuple[LossName, MetricName]] = {
    "classes": ("cross_entropy", "accuracy"),
    "multi-label": ("binary_cross_entropy", "average_precision"),
    "regression": ("l1", "mean_absolute_error"),
}


def parse_number(cell: str, or_else: float) -> float:
    """Read a number as people write it: Python's `1_000` is none."""
    try:
        return or_else if "_" in cell else float(cell)
    except ValueError:
        return or_else


@dataclass(frozen=True)
class LabelRule:
    """What a user says about the labels; what is left out is read from the values."""

    task: TaskKind | None = None
    """What labels are."""
    classes: int | tuple[str, ...] | None = None
    """How many classes there are, numbered from 0, or their names in order."""

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


@dataclass(frozen=True)
class Labels:
    """Labels of all rows. A row without a label has class -1, or NaN."""

    kind: TaskKind
    values: Tensor
    """Whole numbers [rows] where they are classes, floats [rows, columns] otherwise."""
    names: tuple[str, ...]
    """Classes by their number, or the names of the columns."""


def read_labels(columns: dict[str, list[str]], rule: LabelRule, where: Where) -> Labels:
    """Read label columns as they stand in a file; an empty cell is no label.

    Args:
        columns: Cells of each label column by its name.
        rule: What the user states.
        where: What a message calls a row.
    """
    kind = rule.task or _read_kind(columns, rule, where)
    if kind != "classes":
        values = np.stack([_floats(name, columns[name], where) for name in columns], axis=1)
        if kind == "multi-label":
            _check_answers(tuple(columns), values, where)
        if values.size and np.isnan(values).all():
            raise UserError(f"{where(0)}: {_listed(tuple(columns))} must hold a label, got none")
        return Labels(kind, torch.from_numpy(values).float(), tuple(columns))
    if len(columns) > 1:
        raise UserError(f"label must be one column where task='classes', got {list(columns)}")
    ((name, cells),) = columns.items()
    classes = _class_names(name, cells, rule, where)
    # 1.0 is the class 1, unless both are names
    spell = _plain if len(set(map(_plain, classes))) == len(classes) else str
    number = {spell(text): place for place, text in enumerate(classes)} | {"": -1}
    found = [number.get(spell(cell), UNKNOWN) for cell in cells]
    if UNKNOWN in found:
        row = found.index(UNKNOWN)
        raise UserError(
            f"{where(row)}: {name} must be one of the {len(classes)} classes "
            f"{_listed(classes)}, got {cells[row]!r}"
        )
    return Labels("classes", torch.tensor(found, dtype=torch.int64), classes)


def _read_kind(columns: dict[str, list[str]], rule: LabelRule, where: Where) -> TaskKind:
    """Several columns of 0 and 1 are answers; one column of words or whole numbers is classes."""
    if rule.classes is not None:
        return "classes"
    if len(columns) > 1:
        cells = {cell for column in columns.values() for cell in column if cell}
        is_answers = all(parse_number(cell, or_else=np.inf) in (0, 1) for cell in cells)
        return "multi-label" if is_answers else "regression"
    ((name, column),) = columns.items()
    filled = [cell for cell in column if cell]
    words = [cell for cell in filled if parse_number(cell, or_else=np.inf) == np.inf]
    if words and len(words) < len(filled):
        raise UserError(
            f"{where(column.index(words[0]))}: {name} must be all numbers or all words, "
            f"got {words[0]!r}; state task='classes' if this is meant"
        )
    return "classes" if words or all(map(_is_whole, filled)) else "regression"


def _class_names(name: str, cells: list[str], rule: LabelRule, where: Where) -> tuple[str, ...]:
    if rule.classes is not None:
        stated = rule.classes
        return tuple(map(str, range(stated))) if isinstance(stated, int) else tuple(stated)
    is_whole = all(_is_whole(cell) for cell in set(cells) - {""})
    has_decimals = is_whole and any("." in cell for cell in cells)
    cells = list(map(_plain, cells)) if has_decimals else cells
    found = set(cells) - {""}
    if not found:
        raise UserError(f"{where(0)}: {name} must hold a label somewhere, got none")
    if len(found) < LEAST_CLASSES:
        (alone,) = found
        raise UserError(
            f"{where(cells.index(alone))}: {name} must hold {LEAST_CLASSES} classes at least, "
            f"got {alone!r} in all rows; state the classes if there are others"
        )
    if len(found) > MOST_CLASSES:
        raise UserError(
            f"{where(0)}: {name} must hold at most {MOST_CLASSES} classes, got {len(found)}; "
            f"state task='regression' or the number of classes if this is meant"
        )
    if not is_whole:
        return tuple(sorted(found))
    names = tuple(sorted(found, key=lambda text: (int(text), text)))
    _check_whole(name, names, lambda text: where(cells.index(text)))
    if has_decimals and rule.task is None:
        _check_no_targets(name, names)
    return names


def _check_whole(name: str, names: tuple[str, ...], where: Callable[[str], str]) -> None:
    """Reject numbers of classes that are negative, or the same one in two spellings."""
    if int(names[0]) < 0:
        raise UserError(
            f"{where(names[0])}: {name} must not be below 0, got {names[0]!r}; state "
            "task='regression' if these are targets, or the names of the classes"
        )
    for one, other in itertools.pairwise(names):
        if int(one) == int(other):
            raise UserError(
                f"{where(other)}: {name} must be spelt in one way, got {other!r} beside {one!r}; "
                "state the names of the classes if these are two"
            )


def _check_no_targets(name: str, names: tuple[str, ...]) -> None:
    """Reject numbers with decimals that leave most of those below them out: they may be targets."""
    highest = int(names[-1])
    if highest >= FEW and 2 * len(names) < highest + 1:
        raise UserError(
            f"{name} must hold half of the classes 0 to {highest} at least where they are written "
            f"with decimals, got {len(names)} of them, {_listed(names)}; state task='regression' "
            "or task='classes'"
        )


def _is_whole(cell: str) -> bool:
    # longer numbers are no classes, and Python will not read thousands of digits
    found = WHOLE.fullmatch(cell)
    return found is not None and len(found[1].removeprefix("-")) <= LONGEST


def _plain(cell: str) -> str:
    """Leave out decimals that say nothing: 1.0 is the whole number 1."""
    found = WHOLE.fullmatch(cell)
    return found[1] if found else cell


def _floats(name: str, cells: list[str], where: Where) -> Float[np.ndarray, " rows"]:
    values = np.array([parse_number(cell, or_else=np.inf) if cell else np.nan for cell in cells])
    is_filled = np.array([bool(cell) for cell in cells], dtype=bool)
    is_wrong = is_filled & ~(np.abs(values) <= LARGEST)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise UserError(
            f"{where(row)}: {name} must be a finite number of 32 bits, got {cells[row]!r}"
        )
    return values


def _check_answers(
    names: tuple[str, ...], values: Float[np.ndarray, "rows columns"], where: Where
) -> None:
    wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise UserError(f"{where(row)}: {names[column]} must be 0 or 1, got {values[row, column]}")


def _listed(names: tuple[str, ...], most: int = 6) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (", ..." if len(names) > most else "")


def number_labels(values: Tensor, rule: LabelRule, where: Where) -> Labels:
    """Read labels [rows] or [rows, columns]; NaN is no label, nor is -1 as a class or an answer.

    Whole numbers in one column are classes, several columns of 0 and 1 yes-or-no answers, all else
    is regression, unless the rule states something.
    """
    values = values[:, None] if values.dim() == 1 else values
    if not values.is_floating_point():
        values = _signed(values, where)
    kind = rule.task or _kind_of_numbers(values, rule)
    if kind == "multi-label" and not values.is_floating_point():
        values = values.double().masked_fill(values == -1, torch.nan)
    if kind != "classes":
        names = tuple(f"y{column}" for column in range(values.shape[1]))
        targets = _targets(values, kind, where)
        if targets.numel() and bool(targets.isnan().all()):
            raise UserError("y must hold a label somewhere, got none")
        return Labels(kind, targets, names)
    if values.shape[1] != 1:
        raise UserError(f"y must have one column where task='classes', got {values.shape[1]}")
    number = _whole(values[:, 0], where)
    highest = int(number.max()) if number.numel() else -1
    if rule == LabelRule():
        _check_gaps(number, highest)
    names = _numbered_classes(rule.classes, number, highest)
    is_wrong = (number < -1) | (number >= len(names))
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise UserError(
            f"{where(row)}: y must be in 0 to {len(names) - 1}, or -1 for no label, "
            f"got {int(number[row])}"
        )
    return Labels("classes", number, names)


def _signed(values: Tensor, where: Where) -> Int[Tensor, "rows columns"]:
    """Whole numbers of any type as int64: the largest of an unsigned one is no -1."""
    numbers = values.long()
    is_wrong = (numbers < 0).any(dim=1)
    if values.dtype == torch.uint64 and bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise UserError(f"{where(row)}: y must be below 2**63, got {values[row].tolist()}")
    return numbers


def _kind_of_numbers(values: Tensor, rule: LabelRule) -> TaskKind:
    if rule.classes is not None:
        return "classes"
    if values.shape[1] == 1:
        return "regression" if values.is_floating_point() else "classes"
    is_none = torch.isnan(values) if values.is_floating_point() else values == -1
    is_answer = (values == 0) | (values == 1) | is_none
    return "multi-label" if bool(is_answer.all()) else "regression"


def _check_gaps(number: Int[Tensor, " rows"], highest: int) -> None:
    """Reject targets that happen to be whole: each number below the highest would be a class."""
    found = number[number >= 0].unique().tolist()
    if FEW <= highest < MOST_CLASSES and 2 * len(found) < highest + 1:
        shown = ", ".join(map(str, found[:SHOWN])) + (", ..." if len(found) > SHOWN else "")
        raise UserError(
            f"y must hold half of the classes 0 to {highest} at least, got {len(found)} of them, "
            f"{shown}; number the classes from 0 without gaps, make y a float if these are "
            f"targets, or state task='regression' or classes={highest + 1}"
        )


def _numbered_classes(
    stated: int | tuple[str, ...] | None, number: Int[Tensor, " rows"], highest: int
) -> tuple[str, ...]:
    if isinstance(stated, tuple):
        return stated
    if stated is None and highest >= MOST_CLASSES:
        raise UserError(
            f"y must be below {MOST_CLASSES} where it is a class, got {highest}; state "
            "task='regression' or the number of classes if this is meant"
        )
    if stated is None and highest < 0:
        raise UserError("y must hold a label somewhere, got none")
    if stated is None and len(number[number != -1].unique()) < LEAST_CLASSES:
        raise UserError(
            f"y must hold {LEAST_CLASSES} classes at least, got {highest} in all rows; state the "
            "number of classes if there are others"
        )
    return tuple(str(place) for place in range(highest + 1 if stated is None else stated))


def _whole(values: Tensor, where: Where) -> Int[Tensor, " rows"]:
    """Whole numbers, whatever type they are kept in; NaN is no label."""
    if not values.is_floating_point():
        return values
    values = values.nan_to_num(-1.0, torch.inf, -torch.inf)
    is_wrong = ~(values.abs() <= 2**53) | (values != values.round())
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise UserError(f"{where(row)}: y must be a whole number, got {float(values[row])}")
    return values.long()


def _targets(values: Tensor, kind: TaskKind, where: Where) -> Float[Tensor, "rows columns"]:
    targets = values.float()
    is_wrong = torch.isinf(targets)
    if kind == "multi-label":
        is_wrong = ~((targets == 0) | (targets == 1) | torch.isnan(targets))
    if bool(is_wrong.any()):
        row, column = is_wrong.nonzero()[0].tolist()
        rule = "0 or 1" if kind == "multi-label" else "finite"
        raise UserError(f"{where(row)}: y must be {rule}, got {values[row, column].item()}")
    return targets


class Skipped(NamedTuple):
    """A row of a file that could not be read as a graph, and was left out."""

    row: int
    """Counted from 0."""
    where: str
    """What a message calls it."""
    text: str


@dataclass(frozen=True)
class CustomData:
    """A user's graphs, ready for the store and for building a model."""

    columns: GraphColumns
    features: Features
    task: Task
    names: tuple[str, ...] = ()
    """Classes by their number; or, where labels are not classes, the label columns."""
    skipped: tuple[Skipped, ...] = ()
    """Rows of the file that are no graphs."""
    feature_names: tuple[str, ...] = ()
    """Columns of nodes and edges, where values decide which there are."""


def numbers_of(columns: GraphColumns) -> Features:
    """Describe columns of plain numbers."""
    edges = columns.edges.get("edge_attr")
    return Features(
        node_columns=columns.nodes["x"].shape[1],
        edges="none" if edges is None else "numbers",
        edge_columns=0 if edges is None else edges.shape[1],
    )


def task_of(level: Level, labels: Labels) -> Task:
    """Choose how right and wrong are measured from what the labels are."""
    if level == "link":
        return Task("link", 0, "link_cross_entropy", "mrr")
    loss, metric = MEASURES[labels.kind]
    is_classes = labels.kind == "classes"
    outputs = len(labels.names) if is_classes else labels.values.shape[1]
    return Task(level, outputs, loss, metric, classes=outputs if is_classes else 0)

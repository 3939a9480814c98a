"""Label columns, of words or of numbers -> classes, answers or targets, and the task they make."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_least, check_types
from graphmamba.data.catalog import Features, Level, LossName, MetricName, Task, TaskKind
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

LARGEST = float(torch.finfo(torch.float32).max)
UNKNOWN = -2
LONGEST = 18
"""Digits of the largest whole number that is read as a class."""
LEAST_CLASSES = 2
"""Of a single class there is nothing to learn."""
MOST_CLASSES = 1000
"""More different whole numbers than this are targets; so many words are taken for a slip."""
FEW = 20
"""Up to so many different whole numbers are classes, and up to this class gaps are no wonder: a
small set may lack some."""
MANY = 100
"""Beyond so many different whole numbers they are targets where most occur once."""
WHOLE = re.compile(r"(-?\d+)(\.0*)?")
"""A whole number, with the decimals that pandas gives it where a column has gaps."""
Where = Callable[[int], str]
"""What a message calls a row: its file and line."""
MISSING = frozenset({"nan", "n/a", "<na>", "null"})
"""How programs write that there is no label."""
MISSING_NUMBERS = MISSING | {"na", "none", "?", "-"}
"""How they write it among numbers, where none of these can be a class."""
YES, NO = frozenset({"true", "yes", "t", "y"}), frozenset({"false", "no", "f", "n"})
"""Answers in words, where there are several columns of them."""
ANSWERS: tuple[tuple[int, int], ...] = ((0, 1), (-1, 1))
"""Numbers that stand for no and yes."""
MEASURES: dict[TaskKind, tuple[LossName, MetricName]] = {
    "classes": ("cross_entropy", "accuracy"),
    "multi-label": ("binary_cross_entropy", "average_precision"),
    "regression": ("l1", "mean_absolute_error"),
}


LINK_TASK = Task("link", 0, "link_cross_entropy", "mrr")


def parse_number(cell: str, or_else: float) -> float:
    """Read a number as people write it: Python's `1_000` is none."""
    try:
        return or_else if "_" in cell else float(cell)
    except ValueError:
        return or_else


def are_targets(counts: Mapping[int, int]) -> bool:
    """Whether whole numbers, with how often each occurs, are targets and not classes.

    They are where most occur only once, and they are very many or leave most numbers out, and where
    hardly any occurs again: classes could not be learned from one example.
    """
    different, highest = len(counts), max(counts, default=0)
    has_gaps = highest >= FEW and 2 * different < highest + 1
    few_repeat = 2 * sum(count == 1 for count in counts.values()) > different
    hardly_any_repeats = different > FEW and 4 * sum(counts.values()) < 5 * different
    return (
        different > MOST_CLASSES
        or hardly_any_repeats
        or (few_repeat and (has_gaps or different > MANY))
    )


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
    """Read label columns as they stand in a file; an empty cell is no label."""
    stated = rule.classes if isinstance(rule.classes, tuple) else ()
    columns = {name: _without_missing(cells, stated) for name, cells in columns.items()}
    if len(columns) > 1 and rule.task in (None, "multi-label"):
        columns = {name: _answers_as_numbers(cells) for name, cells in columns.items()}
    kind = rule.task or _read_kind(columns, rule, where)
    if kind != "classes":
        values = np.stack([_floats(name, columns[name], where) for name in columns], axis=1)
        if kind == "multi-label":
            if _are_signed(values):
                values = (values + 1) / 2
            wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
            if wrong.any():
                row, column = np.argwhere(wrong)[0].tolist()
                name, got = [*columns][column], values[row, column]
                raise UserError(f"{where(row)}: {name} must be 0 or 1, got {got}")
        is_empty = np.isnan(values).all(axis=0)
        if values.size and (is_empty.all() or (rule.task is None and is_empty.any())):
            names = tuple(name for name, empty in zip(columns, is_empty, strict=True) if empty)
            raise UserError(f"{where(0)}: {_listed(names)} must hold a label, got none")
        return Labels(kind, torch.from_numpy(values).float(), tuple(columns))
    if len(columns) > 1:
        raise UserError(f"target must be one column where task='classes', got {list(columns)}")
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
    """Several columns of two answers are multi-label; one of words or whole numbers is classes."""
    if rule.classes is not None:
        return "classes"
    if len(columns) > 1:
        cells = {cell for column in columns.values() for cell in column if cell}
        numbers = {parse_number(cell, or_else=np.inf) for cell in cells}
        return "multi-label" if any(numbers <= {*pair} for pair in ANSWERS) else "regression"
    ((name, column),) = columns.items()
    filled = [cell for cell in column if cell]
    words = [cell for cell in filled if parse_number(cell, or_else=np.inf) == np.inf]
    if words and len(words) < len(filled):
        raise UserError(
            f"{where(column.index(words[0]))}: {name} must be all numbers or all words, "
            f"got {words[0]!r}; state task='classes' if this is meant"
        )
    if words:
        return "classes"
    is_whole = all(map(_is_whole, filled))
    if is_whole and not are_targets(Counter(int(_plain(cell)) for cell in filled)):
        return "classes"
    return "regression"


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
    for one, other in itertools.pairwise(names):
        if int(one) == int(other):
            raise UserError(
                f"{where(cells.index(other))}: {name} must be spelt in one way, got {other!r} "
                f"beside {one!r}; state the names of the classes if these are two"
            )
    return names


def _without_missing(cells: list[str], stated: tuple[str, ...]) -> list[str]:
    """Empty the cells that say that there is no label, unless that is a stated class."""
    has_numbers = any(np.isfinite(parse_number(cell, or_else=np.inf)) for cell in cells)
    missing = MISSING_NUMBERS if has_numbers else MISSING
    return [
        "" if cell not in stated and cell.strip().lower() in missing else cell for cell in cells
    ]


def _answers_as_numbers(cells: list[str]) -> list[str]:
    """Write yes and no as 1 and 0, where a column holds nothing else."""
    words = {cell: cell.strip().lower() for cell in set(cells) - {""}}
    if not all(word in YES | NO for word in words.values()):
        return cells
    return [("1" if words[cell] in YES else "0") if cell else "" for cell in cells]


def _are_signed(values: Float[np.ndarray, "rows columns"]) -> bool:
    """Whether answers are -1 and +1."""
    return {-1, 1} <= {*np.unique(values).tolist()} and not bool((values == 0).any())


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


def _listed(names: tuple[str, ...], most: int = 6) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (", ..." if len(names) > most else "")


def number_labels(values: Tensor, rule: LabelRule, where: Where) -> Labels:
    """Read labels [rows] or [rows, columns]; NaN is no label, nor is -1 among whole numbers from 0.

    One column of whole numbers is classes, unless most occur only once; floats are, where they are
    0 and 1, or -1 and +1. Several columns of such answers are multi-label. All else is regression,
    unless the rule states something.
    """
    values = values[:, None] if values.dim() == 1 else values
    is_bool = values.dtype == torch.bool
    if not values.is_floating_point():
        values = _signed(values, where)
    kind = rule.task or _kind_of_numbers(values, rule)
    if kind != "classes":
        if kind == "multi-label" and _are_signed(values.double().numpy()):
            values = (values.double() + 1) / 2
        elif kind == "multi-label" and not values.is_floating_point():
            values = values.double().masked_fill(values == -1, torch.nan)
        names = tuple(f"y{column}" for column in range(values.shape[1]))
        targets = _targets(values, kind, where)
        is_empty = targets.isnan().all(dim=0)
        if targets.numel() and bool(is_empty.all() or (rule.task is None and is_empty.any())):
            which = "" if is_empty.all() else f" column {int(is_empty.nonzero()[0])}"
            raise UserError(f"y{which} must hold a label somewhere, got none")
        return Labels(kind, targets, names)
    if values.shape[1] != 1:
        raise UserError(f"y must have one column where task='classes', got {values.shape[1]}")
    number = _whole(values[:, 0], where)
    if rule.classes is None:
        return _read_classes(number, is_bool=is_bool, is_float=values.is_floating_point())
    stated = rule.classes
    names = stated if isinstance(stated, tuple) else tuple(map(str, range(stated)))
    if names != tuple(map(str, range(len(names)))) and all(map(_is_whole, names)):
        # classes that are numbers other than 0, 1, 2, ... are known by these
        places = {int(name): place for place, name in enumerate(names)}
        known = {**places, NOTHING: NOTHING} | ({} if -1 in places else {-1: NOTHING})
        place = torch.tensor([known.get(each, UNKNOWN) for each in number.tolist()])
        is_wrong, place = place == UNKNOWN, place.masked_fill(place == NOTHING, -1)
        rule_told = f"one of the classes {_listed(names)}"
    else:
        place = number.masked_fill(number == NOTHING, -1)
        is_wrong = (place < -1) | (place >= len(names))
        rule_told = f"in 0 to {len(names) - 1}, or -1 for no label"
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise UserError(f"{where(row)}: y must be {rule_told}, got {int(number[row])}")
    return Labels("classes", place, names)


def _read_classes(number: Int[Tensor, " rows"], *, is_bool: bool, is_float: bool) -> Labels:
    """Number classes by their value, or by its rank where values are negative or leave most out."""
    is_none = number == NOTHING
    found = number[~is_none].unique().tolist()
    # -1 is no label, but beside +1 alone, or other negative numbers
    if found and found[0] == -1 and found != [-1, 1] and not is_float:
        is_none, found = is_none | (number == -1), found[1:]
    if not found:
        raise UserError("y must hold a label somewhere, got none")
    if len(found) < LEAST_CLASSES:
        raise UserError(
            f"y must hold {LEAST_CLASSES} classes at least, got {found[0]} in all rows; state the "
            "number of classes if there are others"
        )
    if len(found) > MOST_CLASSES:
        raise UserError(
            f"y must hold at most {MOST_CLASSES} classes, got {len(found)}; state "
            "task='regression' or the number of classes if this is meant"
        )
    highest = found[-1]
    has_gaps = highest >= FEW and 2 * len(found) < highest + 1
    if found[0] < 0 or has_gaps:
        names = tuple(map(str, found))
        number = torch.searchsorted(torch.tensor(found), number)
    else:
        names = ("False", "True") if is_bool else tuple(map(str, range(highest + 1)))
    return Labels("classes", number.masked_fill(is_none, -1), names)


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
    is_float = values.is_floating_point()
    known = values[~torch.isnan(values)] if is_float else values.flatten()
    found, counts = (each.tolist() for each in known.unique(return_counts=True))
    if values.shape[1] == 1 and is_float:
        return "classes" if tuple(found) in ANSWERS else "regression"
    if values.shape[1] == 1:
        counted = dict(zip(found, counts, strict=True))
        if found[:1] == [-1] and found != [-1, 1]:
            del counted[-1]
        return "regression" if are_targets(counted) else "classes"
    allowed = ANSWERS if is_float else (*ANSWERS, (-1, 0, 1))
    return "multi-label" if any({*found} <= {*pair} for pair in allowed) else "regression"


NOTHING = -(1 << 62)
"""Stands for no label until classes are numbered: -1 may be one of them."""


def _whole(values: Tensor, where: Where) -> Int[Tensor, " rows"]:
    """Whole numbers, whatever type they are kept in; NaN becomes `NOTHING`."""
    if not values.is_floating_point():
        return values
    is_none = values.isnan()
    values = values.nan_to_num(0.0, torch.inf, -torch.inf)
    is_wrong = ~(values.abs() <= 2**53) | (values != values.round())
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise UserError(f"{where(row)}: y must be a whole number, got {float(values[row])}")
    return values.long().masked_fill(is_none, NOTHING)


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
class LabelStatistics:
    """What the labels of the training split are like."""

    mean: tuple[float, ...] = ()
    """Of each target, where targets are standardised."""
    std: tuple[float, ...] = ()
    """Likewise; 1 where all are alike."""
    counts: tuple[int, ...] = ()
    """Rows of each class, or positive answers of each column."""
    known: tuple[int, ...] = ()
    """Answers of each column, where labels are answers."""

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Weight of each class, rows / (classes x rows of the class); 1 for one without rows."""
        rows, classes = sum(self.counts), len(self.counts)
        return tuple(rows / (classes * count) if count else 1.0 for count in self.counts)

    @property
    def positive_weights(self) -> tuple[float, ...]:
        """Weight of the positive answers of each column, negative / positive ones."""
        both = zip(self.counts, self.known, strict=True)
        return tuple((known - count) / count if count else 1.0 for count, known in both)


def label_statistics(y: Tensor, task: Task, *, standardizes: bool = True) -> LabelStatistics | None:
    """Count, or measure, the labels of the training split; links have none."""
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


@dataclass(frozen=True)
class CustomData:
    """A user's graphs, ready for the store and for building a model."""

    columns: GraphColumns
    features: Features
    task: Task
    class_names: tuple[str, ...] = ()
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
        return LINK_TASK
    loss, metric = MEASURES[labels.kind]
    is_classes = labels.kind == "classes"
    outputs = len(labels.names) if is_classes else labels.values.shape[1]
    return Task(level, outputs, loss, metric, classes=outputs if is_classes else 0)

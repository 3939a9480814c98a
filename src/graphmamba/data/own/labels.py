"""Label columns -> numbers of classes, yes-or-no answers or targets, read strictly."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.checks import check_least, check_types
from graphmamba.data.own.csv_table import LARGEST, parse_number
from graphmamba.errors import UserError

Kind = Literal["classes", "regression", "multi-label"]
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


@dataclass(frozen=True)
class LabelRule:
    """What a user says about the labels; what is left out is read from the values."""

    kind: Kind | None = None
    """What labels are."""
    classes: int | tuple[str, ...] | None = None
    """How many classes there are, numbered from 0, or their names in order."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.classes is None:
            return
        if self.kind not in (None, "classes"):
            raise UserError(
                f"classes must be left out where kind={self.kind!r}, got {self.classes!r}"
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

    kind: Kind
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
    kind = rule.kind or _read_kind(columns, rule, where)
    if kind != "classes":
        values = np.stack([_floats(name, columns[name], where) for name in columns], axis=1)
        if kind == "multi-label":
            _check_answers(tuple(columns), values, where)
        return Labels(kind, torch.from_numpy(values).float(), tuple(columns))
    if len(columns) > 1:
        raise UserError(f"label must be one column where kind='classes', got {list(columns)}")
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


def _read_kind(columns: dict[str, list[str]], rule: LabelRule, where: Where) -> Kind:
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
            f"got {words[0]!r}; state kind='classes' if this is meant"
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
            f"state kind='regression' or the number of classes if this is meant"
        )
    if not is_whole:
        return tuple(sorted(found))
    names = tuple(sorted(found, key=lambda text: (int(text), text)))
    _check_whole(name, names, lambda text: where(cells.index(text)))
    if has_decimals and rule.kind is None:
        _check_no_targets(name, names)
    return names


def _check_whole(name: str, names: tuple[str, ...], where: Callable[[str], str]) -> None:
    """Refuse numbers of classes that are negative, or the same one in two spellings."""
    if int(names[0]) < 0:
        raise UserError(
            f"{where(names[0])}: {name} must not be below 0, got {names[0]!r}; state "
            "kind='regression' if these are targets, or the names of the classes"
        )
    for one, other in itertools.pairwise(names):
        if int(one) == int(other):
            raise UserError(
                f"{where(other)}: {name} must be spelt in one way, got {other!r} beside {one!r}; "
                "state the names of the classes if these are two"
            )


def _check_no_targets(name: str, names: tuple[str, ...]) -> None:
    """Refuse numbers with decimals that leave most of those below them out: they may be targets."""
    highest = int(names[-1])
    if highest >= FEW and 2 * len(names) < highest + 1:
        raise UserError(
            f"{name} must hold half of the classes 0 to {highest} at least where they are written "
            f"with decimals, got {len(names)} of them, {_listed(names)}; state kind='regression' "
            "or kind='classes'"
        )


def _is_whole(cell: str) -> bool:
    # longer numbers are no classes, and Python refuses to read thousands of digits
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

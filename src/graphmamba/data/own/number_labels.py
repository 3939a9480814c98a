"""Labels that come as numbers: the rules of `labels.py` without the parsing."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.own.labels import (
    FEW,
    LEAST_CLASSES,
    MOST_CLASSES,
    Kind,
    LabelRule,
    Labels,
    Where,
)
from graphmamba.errors import UserError

SHOWN = 6
"""Values that a message lists."""


def number_labels(values: Tensor, rule: LabelRule, where: Where) -> Labels:
    """Read labels [rows] or [rows, columns]; NaN is no label, nor is -1 as a class or an answer.

    Whole numbers in one column are classes, several columns of 0 and 1 yes-or-no answers, all else
    is regression, unless the rule states something.
    """
    values = values[:, None] if values.dim() == 1 else values
    if not values.is_floating_point():
        values = _signed(values, where)
    kind = rule.kind or _read_kind(values, rule)
    if kind == "multi-label" and not values.is_floating_point():
        values = values.double().masked_fill(values == -1, torch.nan)
    if kind != "classes":
        names = tuple(f"y{column}" for column in range(values.shape[1]))
        return Labels(kind, _targets(values, kind, where), names)
    if values.shape[1] != 1:
        raise UserError(f"y must have one column where kind='classes', got {values.shape[1]}")
    number = _whole(values[:, 0], where)
    highest = int(number.max()) if number.numel() else -1
    if rule == LabelRule():
        _check_gaps(number, highest)
    names = _class_names(rule.classes, number, highest)
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


def _read_kind(values: Tensor, rule: LabelRule) -> Kind:
    if rule.classes is not None:
        return "classes"
    if values.shape[1] == 1:
        return "regression" if values.is_floating_point() else "classes"
    is_none = torch.isnan(values) if values.is_floating_point() else values == -1
    is_answer = (values == 0) | (values == 1) | is_none
    return "multi-label" if bool(is_answer.all()) else "regression"


def _check_gaps(number: Int[Tensor, " rows"], highest: int) -> None:
    """Refuse targets that happen to be whole: each number below the highest would be a class."""
    found = number[number >= 0].unique().tolist()
    if FEW <= highest < MOST_CLASSES and 2 * len(found) < highest + 1:
        shown = ", ".join(map(str, found[:SHOWN])) + (", ..." if len(found) > SHOWN else "")
        raise UserError(
            f"y must hold half of the classes 0 to {highest} at least, got {len(found)} of them, "
            f"{shown}; number the classes from 0 without gaps, make y a float if these are "
            f"targets, or state kind='regression' or classes={highest + 1}"
        )


def _class_names(
    stated: int | tuple[str, ...] | None, number: Int[Tensor, " rows"], highest: int
) -> tuple[str, ...]:
    if isinstance(stated, tuple):
        return stated
    if stated is None and highest >= MOST_CLASSES:
        raise UserError(
            f"y must be below {MOST_CLASSES} where it is a class, got {highest}; state "
            "kind='regression' or the number of classes if this is meant"
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


def _targets(values: Tensor, kind: Kind, where: Where) -> Float[Tensor, "rows columns"]:
    targets = values.float()
    is_wrong = torch.isinf(targets)
    if kind == "multi-label":
        is_wrong = ~((targets == 0) | (targets == 1) | torch.isnan(targets))
    if bool(is_wrong.any()):
        row, column = is_wrong.nonzero()[0].tolist()
        rule = "0 or 1" if kind == "multi-label" else "finite"
        raise UserError(f"{where(row)}: y must be {rule}, got {values[row, column].item()}")
    return targets

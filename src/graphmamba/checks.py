"""Checks of the arguments of public functions; a message names argument, rule and value."""

import dataclasses
import types
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from graphmamba.errors import UserError

MOST_SEEDS = 1 << 63
NUMBERS = {int: (int,), float: (int, float)}
"""What counts as a number of a type; NumPy's do not, since JSON cannot write them."""


def check_choice(argument: str, value: object, choices: Collection[object]) -> None:
    """Reject a value that is none of the choices."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise UserError(f"{argument} must be one of {listed}, got {value!r}")


def check_least(argument: str, value: int | float, least: int | float) -> None:
    """Reject a number below the least one allowed."""
    if not _holds(lambda: value >= least):
        raise UserError(f"{argument} must be at least {least}, got {value!r}")


def _holds(comparison: Callable[[], bool]) -> bool:
    """Whether a comparison holds; of what is no number none does."""
    try:
        return comparison()
    except TypeError:
        return False


def check_seed(argument: str, value: int) -> None:
    """Reject a seed that no generator takes."""
    if not _holds(lambda: 0 <= value < MOST_SEEDS):
        raise UserError(f"{argument} must be at least 0 and less than 2**63, got {value!r}")


def check_fraction(argument: str, value: int | float) -> None:
    """Reject a rate outside [0, 1)."""
    if not _holds(lambda: 0 <= value < 1):
        raise UserError(f"{argument} must be in [0, 1), got {value!r}")


def check_divides(argument: str, value: int, name: str, total: int) -> None:
    """Reject a count that does not divide a width evenly, and what is no count."""
    check_is(argument, value, int)
    check_is(name, total, int)
    if value < 1 or total % value:
        raise UserError(f"{argument} must divide {name}={total}, got {value!r}")


def check_is(argument: str, value: object, kind: type | types.UnionType, hint: str = "") -> None:
    """Reject a value of another class."""
    if not _fits(value, kind):
        shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
        names = " or ".join(map(_name, get_args(kind) or (kind,)))
        raise UserError(f"{argument} must be {names}, got {shown}{hint and f': {hint}'}")


def check_types(config: Any, prefix: str = "") -> None:
    """Reject entries of a dataclass that are not of the types that it declares."""
    kind: Any = type(config)
    for name, hint in _entries(kind).items():
        _check_type(prefix + name, getattr(config, name), hint)


@cache
def _entries(kind: Any) -> dict[str, Any]:
    """Types of the entries, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _check_type(argument: str, value: object, hint: Any) -> None:
    is_union = get_origin(hint) in {Union, types.UnionType}
    kinds = get_args(hint) if is_union else (hint,)
    if any(_fits(value, kind) for kind in kinds):
        return
    # of several entries, the one that is wrong is reported
    if get_origin(hint) is tuple and isinstance(value, tuple) and Ellipsis in get_args(hint):
        for each in value:
            _check_type(argument, each, get_args(hint)[0])
    raise UserError(f"{argument} must be {_listed(kinds)}, got {value!r}")


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and _fit(value, get_args(kind))
    # True is an int to Python, but never what a person means by a number
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    return isinstance(value, kind)


def _fit(values: tuple[object, ...], kinds: tuple[Any, ...]) -> bool:
    if Ellipsis in kinds:
        kinds = kinds[:1] * len(values)
    return len(values) == len(kinds) and all(map(_fits, values, kinds))


def _listed(kinds: tuple[Any, ...]) -> str:
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices:
        is_optional = types.NoneType in kinds
        return "one of " + ", ".join(map(repr, [None] * is_optional + choices))
    return " or ".join(map(_name, kinds))


def _name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        count = "" if Ellipsis in others else f"{1 + len(others)} "
        return f"tuple of {count}{'numbers' if first is float else _listed((first,))}"
    names = {types.NoneType: "None", float: "a number"}
    return names.get(kind, getattr(kind, "__name__", str(kind)))

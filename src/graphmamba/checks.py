"""Checks of the arguments of public functions; a message names argument, rule and value."""

import types
from collections.abc import Collection
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
    """Reject a number below the least one allowed, and NaN."""
    if not value >= least:
        raise UserError(f"{argument} must be at least {least}, got {value!r}")


def check_seed(argument: str, value: int) -> None:
    """Reject a seed that no generator takes."""
    if not 0 <= value < MOST_SEEDS:
        raise UserError(f"{argument} must be at least 0 and less than 2**63, got {value!r}")


def check_fraction(argument: str, value: int | float) -> None:
    """Reject a rate outside [0, 1)."""
    if not 0 <= value < 1:
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
        told = f": {hint}" if hint else ""
        raise UserError(f"{argument} must be {_named(kind)}, got {shown}{told}")


def check_types(config: Any, prefix: str = "") -> None:
    """Reject entries of a dataclass that are not of the types that it declares."""
    kind: Any = type(config)
    for name, hint in _hints(kind).items():
        value = getattr(config, name)
        if not _fits(value, hint):
            raise UserError(f"{prefix}{name} must be {_named(hint)}, got {value!r}")


_hints = cache(get_type_hints)


def _fits(value: object, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind in {Union, types.UnionType}:
        return any(_fits(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is tuple:
        if not isinstance(value, tuple):
            return False
        parts = parts[:1] * len(value) if Ellipsis in parts else parts
        return len(value) == len(parts) and all(map(_fits, value, parts))
    # True is an int to Python, but never what a person means by a number
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    return isinstance(value, hint)


def _named(hint: Any) -> str:
    parts = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    choices = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return "one of " + ", ".join(map(repr, [None] * (types.NoneType in parts) + choices))
    names = {types.NoneType: "None", float: "a number"}
    return " or ".join(
        names.get(part, str(part) if get_args(part) else part.__name__) for part in parts
    )

"""From plain mappings to frozen dataclasses: keys and types are checked, nothing is guessed."""

import dataclasses
import difflib
import types
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from graphmamba.errors import UserError

Config = TypeVar("Config")


def parse(kind: type[Config], content: Mapping[str, object], where: str) -> Config:
    """Make a dataclass from the entries of a mapping; what is missing keeps its default.

    Args:
        kind: The dataclass.
        content: Its entries; nested mappings for nested dataclasses.
        where: What a message calls the mapping.
    """
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in content:
        if key not in names:
            raise UserError(f"{where}: no key '{key}'; did you mean '{nearest(str(key), names)}'?")
    values = {key: _convert(value, hints[key], f"{where}: {key}") for key, value in content.items()}
    try:
        return kind(**values)
    except UserError as mistake:
        raise UserError(f"{where}: {mistake}") from mistake


def nearest(word: str, words: Iterable[str]) -> str:
    """Find the most similar word."""
    return max(words, key=lambda each: difflib.SequenceMatcher(None, word, each).ratio())


def _convert(value: object, hint: object, where: str) -> object:
    """Check a value against a type; numbers may be written in any way that YAML knows."""
    if get_origin(hint) in {Union, types.UnionType}:
        return _convert_optional(value, hint, where)
    if get_origin(hint) is Literal:
        return _convert_choice(value, hint, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must hold keys and values, got {value!r}")
        return parse(hint, value, where)
    if hint is float and not isinstance(value, bool):
        return _convert_float(value, where)
    # True is an int to Python, but never what a person means by a number
    is_fitting = isinstance(hint, type) and type(value) is hint
    if not is_fitting:
        raise UserError(f"{where} must be {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


def _convert_optional(value: object, hint: object, where: str) -> object:
    kinds = [kind for kind in get_args(hint) if kind is not types.NoneType]
    return None if value is None else _convert(value, kinds[0], where)


def _convert_choice(value: object, hint: object, where: str) -> object:
    choices = get_args(hint)
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise UserError(f"{where} must be one of {listed}, got {value!r}")
    return value


def _convert_float(value: object, where: str) -> float:
    # YAML 1.1 reads 1e-3 as a word, since it has no point
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except ValueError:
            pass
    raise UserError(f"{where} must be a number, got {value!r}")

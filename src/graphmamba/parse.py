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
    values = {key: convert(value, hints[key], f"{where}: {key}") for key, value in content.items()}
    try:
        return kind(**values)
    except UserError as mistake:
        raise UserError(f"{where}: {mistake}") from mistake


def nearest(word: str, words: Iterable[str]) -> str:
    """Find the most similar word."""
    return max(words, key=lambda each: difflib.SequenceMatcher(None, word, each).ratio())


def convert(value: object, hint: object, where: str) -> object:
    """Check a value against a type; numbers may be written in any way that YAML knows."""
    if get_origin(hint) in {Union, types.UnionType}:
        return _convert_optional(value, hint, where)
    if get_origin(hint) is Literal:
        return _convert_choice(value, hint, where)
    if get_origin(hint) is tuple:
        return _convert_tuple(value, hint, where)
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
    """Take the first kind that fits; what fits none is told about the last."""
    if value is None and types.NoneType in get_args(hint):
        return None
    *others, last = [kind for kind in get_args(hint) if kind is not types.NoneType]
    for kind in others:
        try:
            return convert(value, kind, where)
        except UserError:
            continue
    return convert(value, last, where)


def _convert_tuple(value: object, hint: object, where: str) -> tuple[object, ...]:
    """A list, or on one line: words with commas between them."""
    import yaml

    kinds = get_args(hint)
    if isinstance(value, str):
        words = [part.strip() for part in value.split(",")] if value else []
        value = words if kinds[0] is str else [yaml.safe_load(word) for word in words]
    elif not isinstance(value, list | tuple):
        value = [value]
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise UserError(f"{where} must have {len(kinds)} entries, got {value!r}")
    pairs = zip(value, kinds, strict=True)
    return tuple(
        convert(str(entry) if kind is str else entry, kind, where) for entry, kind in pairs
    )


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

"""Command-line overrides: words become entries of a dataclass by dotted key, `--model.layers 6`."""

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Union, get_args, get_origin, get_type_hints

from graphmamba.errors import UserError
from graphmamba.parse import convert, read_yaml, similar, words_in

FOUND = frozenset({
    "version", "data.features", "data.labels", "data.class_names", "data.columns",
    "data.statistics",
})  # fmt: skip
"""What a program writes and no one types."""
SEVERAL = re.compile(r",|^\[.*\]$")
"""Marks a text that stands for several words: `a,b` or `[a, b]`."""


@dataclass(frozen=True)
class Entries:
    """Marks a command's parameter that takes entries of a dataclass: `Annotated[..., Entries(X)]`.

    The parameter gets those that were given, by dotted key, each checked against its type.
    """

    kind: type
    title: str
    """Heading in the help text."""


@dataclass(frozen=True)
class Entry:
    """One value that can be given."""

    hint: object
    default: object
    about: str


def entries_of(kind: type, default: object = None, prefix: str = "") -> dict[str, Entry]:
    """List what can be given, from the fields of a dataclass and of those inside it."""
    default = kind() if default is None else default
    hints, abouts = get_type_hints(kind), _abouts(kind)
    found: dict[str, Entry] = {}
    for field in dataclasses.fields(kind):
        key, hint = prefix + field.name, hints[field.name]
        value, inner = getattr(default, field.name), _dataclass_in(hint)
        if key in FOUND:
            continue
        if inner is None or types.NoneType in get_args(hint):
            found[key] = Entry(hint, value, abouts.get(field.name, ""))
        if inner is not None:
            found |= entries_of(inner, value, f"{key}.")
    return found


def take(
    words: list[str], given: Mapping[str, Entries], others: Collection[str]
) -> tuple[dict[str, dict[str, object]], list[str]]:
    """Take the entries out of a command's words; what is neither entry nor option is rejected.

    Args:
        words: What was typed after the command's name.
        given: The parameters that take entries.
        others: Names of the command's other options, which stay.
    """
    known = {
        key: (parameter, entry)
        for parameter, entries in given.items()
        for key, entry in entries_of(entries.kind).items()
    }
    values: dict[str, dict[str, object]] = {parameter: {} for parameter in given}
    left: list[str] = []
    waiting = words[::-1]
    while waiting:
        word = waiting.pop()
        option, equals, text = word.partition("=")
        key = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--"):
            left.append(word)
        elif key in others:
            left.append(f"--{key}{equals}{text}")
        elif key not in known:
            closest = similar(key, [*known, *others])
            told = (
                f"did you mean '--{closest}'?" if closest else "--help lists those that there are"
            )
            raise UserError(f"no option '{option}'; {told}")
        else:
            parameter, entry = known[key]
            text = text if equals else _next(waiting, entry, option)
            values[parameter][key] = _read(text, entry.hint, option)
            convert(values[parameter][key], entry.hint, option)
    return values, left


def _next(waiting: list[str], entry: Entry, option: str) -> str:
    """The word behind an option; a switch may stand by itself."""
    if entry.hint is bool and (not waiting or waiting[-1] not in {"true", "false"}):
        return "true"
    if not waiting or waiting[-1].startswith("--"):
        raise UserError(f"{option} must be followed by a value, got none")
    return waiting.pop()


def _read(text: str, hint: object, option: str) -> object:
    """Read a word as YAML would, but for words and lists, which stay as they are typed."""
    kinds = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    if types.NoneType in kinds and text == "null":
        return None
    if any(get_args(kind)[:1] == (str,) for kind in kinds) and SEVERAL.search(text):
        return words_in(text, option)
    if kinds[0] is str or get_origin(kinds[0]) in {Literal, tuple}:
        return text
    try:
        return read_yaml(text, option)
    except UserError:
        return text


def explain(entries: Entries, width: int) -> str:
    """Lines of a help text: each key with its type, what it is for and its default."""
    lines = [f"{entries.title}:"]
    for key, entry in entries_of(entries.kind).items():
        lines.append(f"  --{key} {_kind(entry.hint)}")
        about = f"{entry.about} (default: {_shown(entry.default)})".strip()
        indent = " " * 24
        lines += textwrap.wrap(about, width, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def _kind(hint: object) -> str:
    if get_origin(hint) in {Union, types.UnionType}:
        return "|".join(_kind(part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return "{" + ",".join(map(str, get_args(hint))) + "}"
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        return f"{_kind(parts[0])},..." if parts[-1] is Ellipsis else ",".join(map(_kind, parts))
    if hint is types.NoneType:
        return "null"
    return "KEYS" if dataclasses.is_dataclass(hint) else getattr(hint, "__name__", "").upper()


def _shown(value: object) -> str:
    if value is None or value in ((), ""):
        return "null" if value is None else "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _dataclass_in(hint: object) -> type | None:
    """The dataclass that a type is, or may be."""
    parts = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    for part in parts:
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            return part
    return None


def _abouts(kind: type) -> dict[str, str]:
    """What the source says under each field, those of the classes it starts from included."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(below.value.value).split())
    return found

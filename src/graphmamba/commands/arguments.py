"""Command-line options, from function signatures and dataclasses (`--model.layers 6`)."""

import argparse
import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from graphmamba.errors import UserError
from graphmamba.parse import convert, read_yaml, similar, words_in

FOUND = frozenset({
    "version", "data.features", "data.labels", "data.class_names", "data.columns",
    "data.statistics", "chosen",
})  # fmt: skip
"""Fields that are written by the program and are no options."""
SEVERAL = re.compile(r",|^\[.*\]$")
"""Marks a string that holds a list: `a,b` or `[a, b]`."""


@dataclass(frozen=True)
class Entries:
    """Marks a command's parameter that takes keys of a dataclass: `Annotated[..., Entries(X)]`.

    The parameter receives the given keys, dotted, each checked against its type.
    """

    kind: type
    title: str
    """Heading in the help text."""


@dataclass(frozen=True)
class Entry:
    """One option."""

    hint: object
    default: object
    about: str


class Parser(argparse.ArgumentParser):
    """Parses the options of a function, defined by its signature and docstring.

    Args:
        prog: What the usage begins with.
        function: A command. A parameter marked with `Entries` stands for the keys of a dataclass; a
            switch has a `--no-` form; `from_` is the option `--from`.
        first: Parameter with a default that may be given without its name.
    """

    def __init__(self, prog: str, function: Callable[..., None], first: str = "") -> None:
        description, abouts = _described(inspect.getdoc(function) or "")
        super().__init__(prog, description=description, allow_abbrev=False, exit_on_error=False)
        self._hints: dict[tuple[str, str], object] = {}
        hints = get_type_hints(function, include_extras=True)
        for each in inspect.signature(function).parameters.values():
            hint, about = hints[each.name], abouts.get(each.name, "")
            marks = getattr(hint, "__metadata__", ())
            if marks and isinstance(marks[0], Entries):
                group = self.add_argument_group(marks[0].title)
                for key, entry in entries_of(marks[0].kind).items():
                    self._add(group, key, entry, (each.name, key))
            elif each.default is inspect.Parameter.empty or each.name == first:
                self._hints["", each.name] = hint
                is_needed = each.default is inspect.Parameter.empty
                self.add_argument(
                    f"/{each.name}", nargs=None if is_needed else "?", default=argparse.SUPPRESS,
                    metavar=each.name.upper(), help=about,
                )  # fmt: skip
            else:
                entry = Entry(hint, each.default, about)
                self._add(self, each.name.rstrip("_"), entry, ("", each.name))
        places = "".join(
            f" {each.metavar}" if each.required else f" [{each.metavar}]"
            for each in self._actions
            if not each.option_strings
        )
        self.usage = f"{prog}{places} [--OPTION VALUE ...]"

    def _add(self, group: Any, key: str, entry: Entry, place: tuple[str, str]) -> None:
        self._hints[place] = entry.hint
        is_left_out = entry.default is None and not place[0]
        about = entry.about if is_left_out else f"{entry.about} (default: {_shown(entry.default)})"
        how: dict[str, Any] = {"dest": "/".join(place), "default": argparse.SUPPRESS}
        if entry.hint is bool and not place[0]:
            how |= {"action": argparse.BooleanOptionalAction}
        else:
            how |= {"metavar": _kind(entry.hint).removesuffix("" if place[0] else "|null")}
            # a switch of the configuration may stand by itself
            how |= {"nargs": "?", "const": "true"} if entry.hint is bool else {}
        group.add_argument(f"--{key}", help=about.replace("%", "%%").strip(), **how)
        if "_" in key:
            group.add_argument(f"--{key.replace('_', '-')}", help=argparse.SUPPRESS, **how)

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the given arguments, checked against their types."""
        try:
            given, left = self.parse_known_intermixed_args(words)
        except argparse.ArgumentError as error:
            raise UserError(str(error)) from None
        unknown = next((word for word in left if word.startswith("--")), None)
        if unknown is not None:
            self._reject(unknown.partition("=")[0])
        if left:
            raise UserError(f"no argument '{left[0]}' is expected")
        found: dict[str, Any] = {group: {} for group, _ in self._hints if group}
        for dest, value in vars(given).items():
            group, _, name = dest.partition("/")
            shown = f"--{name.rstrip('_')}"
            read = (
                value if isinstance(value, bool) else _read(value, self._hints[group, name], shown)
            )
            (found[group] if group else found)[name] = read
        return found

    def _reject(self, option: str) -> NoReturn:
        known = [name.rstrip("_") for _, name in self._hints]
        closest = similar(option.removeprefix("--").replace("-", "_"), known)
        told = f"did you mean '--{closest}'?" if closest else "--help lists those that there are"
        raise UserError(f"no option '{option}'; {told}")

    def error(self, message: str) -> NoReturn:
        """Raise errors of the parser instead of exiting."""
        raise UserError(message)


def entries_of(kind: type, default: object = None, prefix: str = "") -> dict[str, Entry]:
    """List the options of a dataclass and of those nested in it."""
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


def _read(text: str, hint: object, option: str) -> object:
    """Parse a value as YAML; strings and lists stay as typed."""
    value: object = text
    kinds = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    if types.NoneType in kinds and text == "null":
        return None
    if Path in kinds:
        return Path(text)
    if any(get_args(kind)[:1] == (str,) for kind in kinds) and SEVERAL.search(text):
        value = words_in(text, option)
    elif not (str in kinds and int not in kinds) and get_origin(kinds[0]) not in {Literal, tuple}:
        try:
            value = read_yaml(text, option)
        except UserError:
            value = text
    convert(value, hint, option)
    return value


def _kind(hint: object) -> str:
    if get_origin(hint) in {Union, types.UnionType}:
        return "|".join(_kind(part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return "{" + ",".join(map(str, get_args(hint))) + "}"
    if get_origin(hint) is list:
        return f"{_kind(get_args(hint)[0])},..."
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
    """The dataclass in a type, such as `X | None`."""
    parts = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    for part in parts:
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            return part
    return None


def _described(text: str) -> tuple[str, dict[str, str]]:
    """Parse the summary of a docstring and, under `Args:`, its parameters."""
    first, _, rest = text.partition("\n\n")
    _, _, listed = rest.partition("Args:\n")
    listed = re.split(r"^\S", listed, maxsplit=1, flags=re.MULTILINE)[0]
    parts = re.split(r"^    (\w+): ", listed, flags=re.MULTILINE)[1:]
    abouts = {
        name: " ".join(each.split()) for name, each in zip(parts[::2], parts[1::2], strict=True)
    }
    return " ".join(first.split()), abouts


def _abouts(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and its base classes."""
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

"""Which options of own graphs are read for which of their formats."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, get_args

from graphmamba.data.own.options import OwnOptions
from graphmamba.errors import UserError

Format = Literal["folder", ".csv", ".npz", "graphs", "benchmark"]
"""How graphs come; files are known by their ending, and a benchmark needs no options."""
WORDS: dict[Format, str] = {"folder": "a folder of CSV files", ".csv": "a CSV of molecules"}
"""What a message calls formats that have options of their own."""
READ_FOR: dict[str, tuple[Format, ...]] = {
    "label": ("folder", ".csv"),
    "is_undirected": ("folder",),
    "smiles": (".csv",),
}
"""Formats that an option is read for; one that is not listed is read for all own graphs."""
OWN: tuple[Format, ...] = ("folder", ".csv", ".npz", "graphs")


def format_of(path: Path) -> Format | None:
    """Tell how graphs come by their path; None where nothing there can be read."""
    found = "folder" if path.is_dir() else path.suffix
    return next((known for known in get_args(Format) if known == found), None)


def check_read(options: OwnOptions, kind: Format, where: str) -> None:
    """Refuse options that say something which nobody reads.

    Args:
        options: What was given; defaults say nothing.
        kind: How the graphs come.
        where: What a message calls them.
    """
    for name in _unread(options, kind):
        value = getattr(options, name)
        shown = ", ".join(value) if isinstance(value, tuple) else repr(value)
        read = READ_FOR.get(name, ())
        told = " or ".join(WORDS[each] for each in read) or "own graphs"
        raise UserError(f"{name} is read for {told} alone, got {shown} for {where}")


def only_read(options: OwnOptions, kind: Format) -> OwnOptions:
    """Leave out what is not read: how graphs of a format are read says less about another."""
    defaults = OwnOptions()
    return replace(options, **{name: getattr(defaults, name) for name in _unread(options, kind)})


def _unread(options: OwnOptions, kind: Format) -> list[str]:
    """Name the options that differ from their defaults for nothing."""
    return [
        field.name
        for field in fields(OwnOptions)
        if kind not in READ_FOR.get(field.name, OWN)
        and getattr(options, field.name) != field.default
    ]

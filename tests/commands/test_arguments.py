"""Arguments of commands: found by name or dotted key, typed, and explained."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from graphmamba.commands.arguments import Entries, Parser, entries_of
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, RunOptions

Given = Mapping[str, object]


@dataclass(frozen=True)
class Inner:
    width: int = 3
    """How wide."""


@dataclass(frozen=True)
class Outer:
    mode: Literal["on", "off"] = "off"
    """Which way."""
    names: str | tuple[str, ...] = ()
    shares: tuple[float, float] = (0.5, 0.5)
    is_loud: bool = False
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    """Perhaps
    something."""


def outer(it: Annotated[Given, Entries(Outer, "it")]) -> None:
    """Take the keys of a dataclass."""


def command(
    name: str | None = None,
    from_: Path | None = None,
    label: list[str] | str | None = None,
    json: bool = False,
    options: Annotated[Given, Entries(RunOptions, "the run")] = {},  # noqa: B006
    overrides: Annotated[Given, Entries(Experiment, "the experiment")] = {},  # noqa: B006
) -> None:
    """Do something, 100 % sure.

    Args:
        name: What it is done to.
        from_: Where it is.
        label: What it is called.
        json: Whether it is said.
        options: See below.
        overrides: See below.
    """


def taken(words: str) -> dict[str, object]:
    return Parser("test", outer).read(words.split())["it"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--mode on", {"mode": "on"}),
        ("--names a", {"names": "a"}),
        ("--names a,b", {"names": ["a", "b"]}),
        ("--names [a,b]", {"names": ["a", "b"]}),
        ('--names ["a,b",c]', {"names": ["a,b", "c"]}),
        ("--names [a", {"names": "[a"}),
        ("--shares 0.25,0.75", {"shares": "0.25,0.75"}),
        ("--shares [0.25,0.75]", {"shares": "[0.25,0.75]"}),
        ("--is_loud", {"is_loud": True}),
        ("--is-loud false", {"is_loud": False}),
        ("--inner.width 5", {"inner.width": 5}),
        ("--maybe null", {"maybe": None}),
    ],
)
def test_words_become_values(words: str, values: dict[str, object]) -> None:
    assert taken(words) == values


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--mod on", "no option '--mod'; did you mean '--mode'"),
        ("--width 5", "no option '--width'; did you mean '--inner.width'"),
        ("--colour 5", "no option '--colour'; --help lists those that there are"),
        ("--names [[a],b]", r"--names must be words such as a,b or \[a, b\], got '\[\[a\],b\]'"),
        ("--inner.width five", "--inner.width must be int, got 'five'"),
        ("--mode sideways", "--mode must be one of 'on', 'off', got 'sideways'"),
        ("--shares 1", "--shares must have 2 entries"),
        ("--inner.width", "argument --inner.width: expected one argument"),
        ("surplus", "no argument 'surplus' is expected"),
        ("--maybe 3", "--maybe must hold keys and values, got 3"),
    ],
)
def test_errors_are_named(words: str, told: str) -> None:
    with pytest.raises(UserError, match=told.replace(".", r"\.")):
        taken(words)


def test_arguments_of_a_function_stand_beside_keys() -> None:
    words = "--from here --max-time 5 mnist --model.layers 6 --split_sizes 4,2,2 --json --label a,b"
    assert Parser("test", command, "name").read(words.split()) == {
        "name": "mnist",
        "from_": Path("here"),
        "label": ["a", "b"],
        "json": True,
        "options": {"max_time": 5},
        "overrides": {"model.layers": 6, "split_sizes": "4,2,2"},
    }
    assert Parser("test", command, "name").read(["--no-json"])["json"] is False


def test_every_key_is_explained() -> None:
    text = " ".join(Parser("test", command, "name").format_help().split())
    assert text.startswith("usage: test [NAME] [--OPTION VALUE ...] Do something, 100 % sure.")
    for word in (
        "NAME What it is done to.",
        "--from PATH Where it is.",
        "--label STR,...|STR What",
    ):
        assert word in text
    for kind in (Experiment, RunOptions):
        for key, entry in entries_of(kind).items():
            assert f"--{key} " in text
            assert entry.about, key
    assert "data.features" not in text

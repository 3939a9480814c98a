"""Entries of a dataclass from words: found by dotted key, typed, and explained."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from graphmamba.commands.overrides import Entries, entries_of, explain, take
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, RunOptions

GIVEN = {"options": Entries(RunOptions, "the run"), "overrides": Entries(Experiment, "the rest")}


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


def taken(words: str, kind: type = Outer) -> dict[str, object]:
    values, left = take(words.split(), {"it": Entries(kind, "it")}, ())
    assert left == []
    return values["it"]


def test_fields_of_fields_are_listed_with_defaults_and_words() -> None:
    found = entries_of(Outer)
    assert list(found) == [
        "mode", "names", "shares", "is_loud", "inner.width", "maybe", "maybe.width",
    ]  # fmt: skip
    assert found["inner.width"].default == 3
    assert found["maybe"].about == "Perhaps something."


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--mode on", {"mode": "on"}),
        ("--mode=off", {"mode": "off"}),
        ("--names a", {"names": "a"}),
        ("--names a,b", {"names": ["a", "b"]}),
        ("--names [a,b]", {"names": ["a", "b"]}),
        ("--names [no]", {"names": ["no"]}),
        ('--names ["a,b",c]', {"names": ["a,b", "c"]}),
        ("--names [a", {"names": "[a"}),
        ("--names 12", {"names": "12"}),
        ("--shares 0.25,0.75", {"shares": "0.25,0.75"}),
        ("--shares [0.25,0.75]", {"shares": "[0.25,0.75]"}),
        ("--is_loud", {"is_loud": True}),
        ("--is-loud false", {"is_loud": False}),
        ("--is_loud --mode on", {"is_loud": True, "mode": "on"}),
        ("--inner.width 5", {"inner.width": 5}),
        ("--maybe null", {"maybe": None}),
        ("--maybe.width=7", {"maybe.width": 7}),
    ],
)
def test_words_become_values(words: str, values: dict[str, object]) -> None:
    assert taken(words) == values


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--mod on", "no option '--mod'; did you mean '--mode'"),
        ("--inner.widht 5", "no option '--inner.widht'; did you mean '--inner.width'"),
        ("--width 5", "no option '--width'; did you mean '--inner.width'"),
        ("--colour 5", "no option '--colour'; --help lists those that there are"),
        ("--names [[a],b]", r"--names must be words such as a,b or \[a, b\], got '\[\[a\],b\]'"),
        ("--inner.width five", "--inner.width must be int, got 'five'"),
        ("--inner.width 5.5", "--inner.width must be int, got 5.5"),
        ("--mode sideways", "--mode must be one of 'on', 'off', got 'sideways'"),
        ("--shares 1", "--shares must have 2 entries"),
        ("--shares a,b", "--shares must be a number, got 'a'"),
        ("--inner.width", "--inner.width must be followed by a value, got none"),
        ("--inner.width --mode on", "--inner.width must be followed by a value, got none"),
        ("--maybe 3", "--maybe must hold keys and values, got 3"),
    ],
)
def test_mistakes_are_named(words: str, told: str) -> None:
    with pytest.raises(UserError, match=told.replace(".", r"\.")):
        taken(words)


def test_other_words_stay_and_groups_are_kept_apart() -> None:
    words = "mnist --run_dir here --max-time 5 --model.layers 6 --split_sizes 4,2,2 --print-config"
    values, left = take(words.split(), GIVEN, ("run_dir", "print_config"))
    assert left == ["mnist", "--run_dir", "here", "--print_config"]
    assert values == {
        "options": {"max_time": 5},
        "overrides": {"model.layers": 6, "split_sizes": "4,2,2"},
    }


def test_every_key_of_the_experiment_is_explained() -> None:
    text = explain(GIVEN["overrides"], width=90)
    for key, entry in entries_of(Experiment).items():
        assert f"--{key} " in text
        assert entry.about, key
    assert "data.features" not in text
    explanations = [line for line in text.splitlines() if line.startswith("   ")]
    assert max(map(len, explanations)) <= 90
    for entry in entries_of(RunOptions).values():
        assert entry.about

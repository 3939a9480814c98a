"""The script that damages inputs finds what it looks for."""

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.scripts import load_script
from tests.helpers.typecheck import typecheck_off


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("fuzz", monkeypatch)


@pytest.mark.parametrize("name", ["csv", "npz", "yaml", "experiment"])
def test_damaged_inputs_are_answered_in_one_line(
    study: ModuleType, name: str, tmp_path: Path
) -> None:
    with typecheck_off():
        tally = study.run(name, 4, 7, tmp_path)
    assert tally.tried == tally.accepted + tally.rejected == 4
    assert tally.accepted
    assert not tally.found


def fail(_: list[str]) -> None:
    raise KeyError("x")


def talk(_: list[str]) -> None:
    sys.stderr.write("one\ntwo\n")
    sys.exit(2)


@pytest.mark.parametrize(
    ("command", "column", "told"),
    [
        (fail, "tracebacks", "KeyError in test_fuzz.py, fail: 'x'"),
        (lambda _: time.sleep(60), "hangs", "hangs: a b"),
        (talk, "rejected", r"ends with 2 and says 'one\ntwo\n'"),
        (lambda _: None, "accepted", None),
        (lambda _: sys.exit(1), "accepted", "ends with 1 and says ''"),
    ],
)
def test_whatever_else_a_command_does_is_found(
    study: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    command: object,
    column: str,
    told: str | None,
) -> None:
    monkeypatch.setattr(study, "graphmamba", command)
    monkeypatch.setattr(study, "SECONDS", 0.2)
    tally = study.Tally()
    assert study.answer(["a", "b", "c"], tally) == told
    assert (tally.tried, getattr(tally, column)) == (1, 1)

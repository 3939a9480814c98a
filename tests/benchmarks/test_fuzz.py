"""The script that damages inputs finds what it looks for, and the same for the same seed."""

import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from graphmamba.errors import UserError
from tests.helpers.scripts import load_script
from tests.helpers.typecheck import typecheck_off


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("fuzz", monkeypatch)


@pytest.mark.parametrize("name", ["csv", "npz", "yaml", "experiment", "weights", "state"])
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


def hang(_: list[str]) -> None:
    try:
        time.sleep(60)
    except Exception:
        time.sleep(60)


def talk(_: list[str]) -> None:
    sys.stderr.write("one\ntwo\n")
    sys.exit(2)


def reject(_: list[str]) -> None:
    sys.stderr.write("graphmamba: no\n")
    sys.exit(2)


@pytest.mark.parametrize(
    ("command", "column", "told"),
    [
        (fail, "tracebacks", "KeyError in test_fuzz.py, fail: 'x'"),
        (hang, "hangs", "hangs: a b"),
        (talk, "rejected", r"ends with 2 and says 'one\ntwo\n'"),
        (reject, "rejected", None),
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
    monkeypatch.setattr(study, "WAITING", 0.2)
    tally = study.Tally()
    assert study.answer(["a", "b", "c"], tally, lambda _: None) == told
    assert (tally.tried, getattr(tally, column)) == (1, 1)


def test_what_is_taken_for_something_else_is_found(
    study: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study.write_folder(tmp_path, tmp_path)
    right = "  graphs     8  \n  nodes in all     39  \n  directed edges in all   35\n"
    assert study.judge_folder(tmp_path, right) is None
    told = "wrong: nodes in all must be 39, printed 40"
    wrong = right.replace("39", "40")
    assert study.judge_folder(tmp_path, wrong) == told
    monkeypatch.setattr(study, "graphmamba", lambda _: sys.stdout.write(wrong))
    tally = study.Tally()
    assert study.answer([], tally, lambda printed: study.judge_folder(tmp_path, printed)) == told
    assert tally.wrong == 1


@pytest.mark.parametrize(
    ("given", "taken", "told"),
    [
        ({"a": {"b": "1e-5", "c": None}}, {"a": {"b": 1e-05, "c": None, "d": 2}, "e": 1}, None),
        ({"options": {}, "a": [1, 2]}, {"a": [1, 2]}, None),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "wrong: .a.b was 1, taken for 2"),
        ({"a": {"b": True}}, {"a": {"b": 1.5}}, "wrong: .a.b was True, taken for 1.5"),
        ({"a": 1}, {}, "wrong: .a was 1, taken for 'missing'"),
    ],
)
def test_entries_that_come_out_otherwise_are_found(
    study: ModuleType, given: object, taken: object, told: str | None
) -> None:
    assert study.judge_entries(given, taken) == told


def test_the_record_says_what_was_asked_and_found(
    study: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "fuzz.json"
    words = ["fuzz.py", "--inputs", "2", "--only", "yaml", "--out", str(out), "--commit", "abc"]
    monkeypatch.setattr(sys, "argv", words)
    study.main()
    found = json.loads(out.read_text())
    assert found["asked"] == {"inputs": 2, "seed": 0, "seconds_allowed": 60}
    assert found["formats"]["yaml"]["tried"] == 2
    assert found["environment"]["commit"] == "abc"
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--inputs", "0"])
    with pytest.raises(UserError, match="--inputs must be at least 1"):
        study.main()

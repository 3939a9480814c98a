"""Fuzzing of the commands."""

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
def test_damaged_inputs_are_accepted_or_rejected_in_one_line(
    study: ModuleType, name: str, tmp_path: Path
) -> None:
    with typecheck_off():
        tally = study.run(name, 4, 7, tmp_path)
    assert tally.tried == tally.accepted + tally.rejected == 4
    assert tally.accepted
    assert not tally.found


def test_a_traceback_is_found(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> None:
        raise KeyError("x")

    monkeypatch.setattr(study, "graphmamba", fail)
    tally = study.Tally()
    assert study.answer(["a"], tally) == "KeyError in test_fuzz.py, fail: 'x'"
    assert (tally.tried, tally.tracebacks) == (1, 1)

"""The run of marked tests side by side, on a small tree of tests of its own."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.scripts import load_script

FIRST = """
import os, pytest

pytestmark = pytest.mark.chosen

@pytest.mark.parametrize("value", [1, "a::b"])
def test_passes(value):
    assert value

def test_fails():
    assert not os.getcwd()

def test_is_skipped():
    pytest.skip("no reason")
"""
DIES = """
import os, pytest

@pytest.mark.chosen
def test_dies():
    os._exit(3)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, at home in a folder of small tests."""
    module = load_script("gpu_tests", monkeypatch)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = chosen\n")
    (tmp_path / "tests").mkdir()
    # Other plugins take longer to import than these tests to run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return module


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict]:
    out = script.ROOT / "record.json"
    fixed = {"out": out, "marker": "chosen", "device": "cpu", "commit": "abc"}
    options = [word for name, value in fixed.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["gpu_tests.py", *options, *words])
    with pytest.raises(SystemExit) as ended:
        script.main()
    return int(ended.value.code or 0), json.loads(out.read_text())


def test_a_record_names_what_did_not_pass_and_counts_what_did(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, dies = "tests/test_a.py", "tests/test_b.py"
    for name, text in ((first, FIRST), (dies, DIES)):
        (script.ROOT / name).write_text(text)
    code, record = run(script, monkeypatch, "--processes", "2")
    assert code == 1
    assert record["counts"] == {"passed": 2, "failed": 1, "skipped": 1, "lost": 1}
    assert record["not passed"] == {
        f"{first}::test_fails": "failed",
        f"{first}::test_is_skipped": "skipped",
    }
    assert record["lost"] == [f"{dies}::test_dies"]
    assert record["passed"] == {first: 2}
    assert len(record["durations"]) == 4


def test_tests_that_have_passed_at_the_same_commit_are_not_run_again(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script.ROOT / "tests" / "test_a.py").write_text(FIRST)
    _, first = run(script, monkeypatch, "--processes", "1")
    record = script.ROOT / "first.json"
    record.write_text(json.dumps(first))
    # those that have passed would fail now
    changed = FIRST.replace("assert value", "assert not value").replace(
        "assert not os", "assert os"
    )
    (script.ROOT / "tests" / "test_a.py").write_text(changed)
    _, second = run(script, monkeypatch, "--processes", "1", "--resume", str(record))
    assert second["counts"] == {"passed": 3, "skipped": 1}
    assert second["seconds"] > first["seconds"]
    code, _ = run(script, monkeypatch, "--resume", str(record), "--commit", "def")
    assert code == 2  # as for other wrong arguments


def test_the_longest_tests_come_first_and_short_ones_share_a_process(script: ModuleType) -> None:
    former = {"a": 1.0, "b": 30.0, "c": 1.0, "d": 5.0, "e": 3.0, "gone": 2.0}
    # A fair share of the 70 seconds is 8.75; "new" is taken to be as long as the longest.
    shares = script.assign(["a", "b", "c", "d", "e", "new"], former, processes=2)
    assert shares == [["b"], ["new"], ["d", "e"], ["a", "c"]]
    tests = [f"{number:02}" for number in range(13)]
    shares = script.assign(tests, {}, processes=2)
    assert sorted(test for share in shares for test in share) == tests

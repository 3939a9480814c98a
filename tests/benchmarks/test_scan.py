import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from graphmamba.bench.shapes import BATCHES, BatchShape
from tests.helpers.scripts import load_script

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scan.py"
SMALL = BatchShape("small", sequences=3, tokens=60, longest=40, inner=8)


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on batches small enough for a test."""
    module = load_script("scan", monkeypatch)
    for name in BATCHES:
        monkeypatch.setitem(BATCHES, name, replace(SMALL, name=name))
    monkeypatch.setattr(module, "GROWTH", [SMALL])
    return module


def run(study: ModuleType, out: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> dict:
    words = ["scan.py", "--device", device, "--out", str(out), "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", words)
    study.main()
    return json.loads(out.read_text())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_study_covers_every_batch(
    device: str, study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run(study, tmp_path / "new" / "scan.json", monkeypatch, device)
    assert {one["batch"]["name"] for one in written["times"]} == set(BATCHES)
    assert written["environment"]["commit"] == "0123abc"
    assert written["growth"]
    assert set(study.H200_TARGETS) == set(BATCHES)


def test_the_growth_reaches_from_ten_thousand_to_a_million(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = load_script("scan", monkeypatch)
    for kind in ("one sequence", "many sequences"):
        tokens = [shape.tokens for shape in module.GROWTH if shape.name == kind]
        assert tokens == [10_000, 100_000, 1_000_000]


def test_it_starts_without_the_command_line_libraries() -> None:
    code = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(['jsonargparse', 'beartype', 'docstring_parser']))\n"
        f"sys.argv = ['scan.py', '--help']\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--out" in done.stdout

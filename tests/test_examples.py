"""The examples run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_example_runs(file: Path) -> None:
    # a tenth of the steps that the paper in one file takes to learn its task
    few = "import runpy, sys; runpy.run_path(sys.argv[1])['main'](steps=30)"
    words = ["-c", few] if file.stem == "graph_mamba_minimal" else []
    done = subprocess.run(
        [sys.executable, *words, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_own_model_fits_on_a_page() -> None:
    lines = (EXAMPLES / "own_model.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 20

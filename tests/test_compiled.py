"""Compiled functions that are kept on disk."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_imports import ROOT, modules_imported_by

pytest.importorskip("numba")

from graphmamba.data import cpu_compile as data
from graphmamba.ops import cpu_compile as ops

KERNELS = """
from pathlib import Path
from constants import NUMBER
from graphmamba.ops.cpu_compile import fingerprint_of, kept

def number():
    return NUMBER

kernel = kept(number, fingerprint_of([Path(__file__).with_name("constants.py")]))
print(kernel(), sum(kernel.stats.cache_hits.values()))
"""
STAGES = {"data": data, "ops": ops}


def what_a_process_finds(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.stdout.split()


def test_a_kernel_follows_what_it_draws_on(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "constants.py").write_text("NUMBER = 1\n")
    assert what_a_process_finds(tmp_path) == ["1", "0"]
    assert what_a_process_finds(tmp_path) == ["1", "1"]
    (tmp_path / "constants.py").write_text("NUMBER = 2\n")
    assert what_a_process_finds(tmp_path) == ["2", "0"]


def files_imported_by(file: Path) -> set[Path]:
    """Files of the package that a file takes something from."""
    names = [name for name in modules_imported_by(file) if name.startswith("graphmamba.")]
    paths = [ROOT.joinpath(*name.split(".")[1:-1]).with_suffix(".py") for name in names]
    return {path for path in paths if path.exists()}


@pytest.mark.parametrize("stage", STAGES)
def test_all_that_kernels_import_counts(stage: str) -> None:
    module: ModuleType = STAGES[stage]
    compiler = ROOT / "ops" / "cpu_compile.py"
    files = [file for file in module.SOURCES if compiler in files_imported_by(file)]
    assert len(files) > 3
    for file in files:
        assert files_imported_by(file) <= {compiler, *module.SOURCES}, file

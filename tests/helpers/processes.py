"""Code that needs a process of its own: what it sets has to be set before the first import."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest
import torch

Test = TypeVar("Test", bound=Callable[..., None])
ROOT = Path(__file__).parents[2]


def run_apart(code: str, **environment: str) -> None:
    """Run without shape checks, which neither compilers nor kernels can see through."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "GRAPHMAMBA_NO_TYPECHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings, **environment},
    )
    assert done.returncode == 0, done.stderr[-4000:]


needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")


def only_interpreted(test: Test) -> Test:
    """Mark a test that interprets kernels: where there is a GPU, they run on it themselves."""
    on_gpu = pytest.mark.skipif(
        torch.cuda.is_available(), reason="the kernels run on the GPU itself"
    )
    return needs_triton(on_gpu(test))

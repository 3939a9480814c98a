"""Code that needs a process of its own: what it sets has to be set before the first import."""

import os
import subprocess
import sys
from pathlib import Path

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

"""Marks functions of this package that Numba compiles; they are cached on disk."""

from pathlib import Path
from typing import Any

from graphmamba.ops.cpu_compile import fingerprint_of, kept

_HERE = Path(__file__).parent
SOURCES = [_HERE / "cpu_compile.py", _HERE / "gather.py", *_HERE.rglob("*_kernels.py")]
"""All that a kernel may draw on."""
_FINGERPRINT = fingerprint_of(SOURCES)


def kernel(function: Any) -> Any:
    """Mark a function that Python calls."""
    return kept(function, _FINGERPRINT)

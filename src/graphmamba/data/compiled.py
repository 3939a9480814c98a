"""How the compiled functions of the data stage are compiled: once, and kept on disk."""

from typing import Any

from numba import njit

# No `fastmath`: regions of images must be the same pixel for pixel wherever they are computed.
_OPTIONS: Any = {"nogil": True, "error_model": "numpy"}

helper: Any = njit(**_OPTIONS)
"""Marks a function that kernels call."""


def kernel(function: Any) -> Any:
    """Mark a function that Python calls."""
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        # Where no folder can be written to, each process compiles for itself.
        return helper(function)

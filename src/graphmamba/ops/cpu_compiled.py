"""Compiles kernels for one real type at a time, once for all processes on this machine."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import from_dtype

from graphmamba.ops.compiled import fingerprint_of, kept

_HERE = Path(__file__).parent
SOURCES = [*_HERE.glob("*.py"), *_HERE.glob("*/cpu*.py")]
"""All that a kernel may draw on."""
_FINGERPRINT = fingerprint_of(SOURCES)


def kernel(signature: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function as a kernel; it becomes a function of the real type that compiles it.

    Args:
        signature: The Numba signature, given the real type. Stated in advance, since Numba would
            compile anew for each mixture of dense arrays and views.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compile_for(dtype: np.dtype[Any]) -> Callable[..., Any]:
            dispatcher = kept(function, _FINGERPRINT)
            dispatcher.compile(signature(from_dtype(dtype)))
            dispatcher.disable_compile()
            return dispatcher

        return compile_for

    return wrap

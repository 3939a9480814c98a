"""Compiles kernels for one real type at a time, once for all processes on this machine."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numba import from_dtype, njit
from numba.core.caching import FunctionCache

helper: Any = njit(nogil=True, error_model="numpy")
"""Marks a function that kernels call."""

_HERE = Path(__file__).parent
_SOURCES = sorted([*_HERE.glob("*.py"), *_HERE.glob("*/cpu*.py")])
FINGERPRINT = sha256(b"".join(file.read_bytes() for file in _SOURCES)).hexdigest()
"""Stands for all sources that a kernel may draw on."""


class _SourceCache(FunctionCache):
    """Numba's cache on disk, which by itself overlooks changes in other files than the kernel's."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return super()._index_key(sig, codegen), FINGERPRINT  # type: ignore[no-untyped-call]


def kernel(signature: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function as a kernel; it becomes a function of the real type that compiles it.

    Args:
        signature: The Numba signature, given the real type. Stated in advance, since Numba would
            compile anew for each mixture of dense arrays and views.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compile_for(dtype: np.dtype[Any]) -> Callable[..., Any]:
            dispatcher: Any = helper(function)
            # Where no folder can be written to, each process compiles for itself.
            with suppress(RuntimeError):
                dispatcher._cache = _SourceCache(function)  # type: ignore[no-untyped-call]
            dispatcher.compile(signature(from_dtype(dtype)))
            dispatcher.disable_compile()
            return dispatcher

        return compile_for

    return wrap

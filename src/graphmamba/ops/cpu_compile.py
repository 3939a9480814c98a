"""Functions compiled by Numba, kept on disk until any source that they draw on changes."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numba import from_dtype, njit
from numba.core.caching import FunctionCache

# No `fastmath`: regions of images, for one, must be the same pixel for pixel wherever they are
# computed.
helper: Any = njit(nogil=True, error_model="numpy")
"""Marks a function that kernels call."""


class _SourceCache(FunctionCache):
    """Numba's cache on disk, which by itself overlooks changes in other files than the kernel's."""

    def __init__(self, function: Any, fingerprint: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._fingerprint = fingerprint

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return super()._index_key(sig, codegen), self._fingerprint  # type: ignore[no-untyped-call]


def fingerprint_of(sources: Iterable[Path]) -> str:
    """Stand for the contents of files, whatever their order, and for how they are compiled."""
    files = [Path(__file__), *sources]
    digests = sorted(sha256(file.read_bytes()).hexdigest() for file in files)
    return sha256("".join(digests).encode()).hexdigest()


def kept(function: Any, fingerprint: str) -> Any:
    """Mark a function that is compiled once for all processes on this machine.

    Args:
        function: In plain Python.
        fingerprint: Of all sources that it may draw on, by `fingerprint_of`.
    """
    dispatcher = helper(function)
    # Where no folder can be written to, each process compiles for itself.
    with suppress(RuntimeError):
        dispatcher._cache = _SourceCache(function, fingerprint)
    return dispatcher


_HERE = Path(__file__).parent
SOURCES = [*_HERE.glob("cpu_*.py"), *_HERE.glob("*/cpu_kernels.py")]
"""All that a kernel of an operator may draw on."""


@cache
def _fingerprint() -> str:
    return fingerprint_of(SOURCES)


def kernel(signature: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function as a kernel; it becomes a function of the real type that compiles it.

    Args:
        signature: The Numba signature, given the real type. Stated in advance, since Numba would
            compile anew for each mixture of dense arrays and views.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compile_for(dtype: np.dtype[Any]) -> Callable[..., Any]:
            dispatcher = kept(function, _fingerprint())
            dispatcher.compile(signature(from_dtype(dtype)))
            dispatcher.disable_compile()
            return dispatcher

        return compile_for

    return wrap

"""Compiles Numba functions and caches them on disk until one of the source files changes."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numba import from_dtype, njit
from numba.core.caching import FunctionCache

# Decorator of functions that kernels call. No `fastmath`: results must not depend on the machine.
helper: Any = njit(nogil=True, error_model="numpy")


class _SourceCache(FunctionCache):
    """Numba's cache on disk, which by itself ignores changes in files that a kernel imports."""

    def __init__(self, function: Any, fingerprint: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._fingerprint = fingerprint

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return super()._index_key(sig, codegen), self._fingerprint  # type: ignore[no-untyped-call]


def fingerprint_of(sources: Iterable[Path]) -> str:
    """Hash the contents of the files, in any order, and of this file."""
    files = [Path(__file__), *sources]
    digests = sorted(sha256(file.read_bytes()).hexdigest() for file in files)
    return sha256("".join(digests).encode()).hexdigest()


def kept(function: Any, fingerprint: str) -> Any:
    """Return the compiled function, cached on disk under a `fingerprint_of` its sources."""
    dispatcher = helper(function)
    # Without a writable folder, each process compiles by itself.
    with suppress(RuntimeError):
        dispatcher._cache = _SourceCache(function, fingerprint)
    return dispatcher


_HERE = Path(__file__).parent
SOURCES = [*_HERE.glob("cpu_*.py"), *_HERE.glob("*/cpu_kernels.py")]  # all that kernels import


@cache
def _fingerprint() -> str:
    return fingerprint_of(SOURCES)


def kernel(signature: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn a kernel into a function that compiles it for a real type.

    `signature` maps the real type to the Numba signature. It is explicit, since Numba would compile
    the kernel again for each combination of dense and strided arrays.
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

"""A function's own rejection can only be seen where the type checker does not reject first."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def typecheck_off() -> Iterator[None]:
    """Call the package as a user does, whose types nobody checks."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)

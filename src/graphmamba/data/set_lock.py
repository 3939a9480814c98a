"""The lock of a set on disk: of several processes one builds it and the others wait."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphmamba.whole_files import cannot_write

LOCK = ".lock"


@contextmanager
def lock_of(place: Path) -> Iterator[None]:
    """Hold the lock of a set, which whoever builds it holds."""
    from filelock import FileLock

    lock = FileLock(place.with_suffix(LOCK))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as mistake:
        raise cannot_write(place, mistake) from mistake
    try:
        yield
    finally:
        lock.release()


def can_lock(place: Path) -> bool:
    """Whether a set has been built here, by someone who may do so."""
    return os.access(place.with_suffix(LOCK), os.W_OK)

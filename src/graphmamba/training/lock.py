"""A lock that keeps the folder of a run to one run at a time."""

import errno
import os
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from graphmamba.errors import UserError

LOCK = ".lock"
"""Name of the file that is locked; it is there as long as a run is."""
HELD = (errno.EAGAIN, errno.EACCES)
"""What file systems answer where another process has the lock."""


class FolderLock:
    """Once it is taken, keeps others from a folder until it is left.

    The system itself lets go of what a process held that was killed: a file that is left behind
    stops nobody.

    Args:
        folder: What is kept; it need not be there before the lock is taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / LOCK
        self._handle: int | None = None

    def __enter__(self) -> "FolderLock":
        return self

    def take(self) -> None:
        """Take the lock, or refuse a folder that another run has."""
        while self._handle is None:
            handle = self._open()
            try:
                _lock(handle, self._folder)
                if self._is_named(handle):
                    self._handle = handle
            finally:
                if self._handle is None:
                    os.close(handle)

    def check(self) -> None:
        """Refuse to go on in a folder that was removed, or that another one took the place of."""
        if self._handle is not None and not self._is_named(self._handle):
            raise UserError(
                f"folder must stay while a run writes to it, and '{self._folder}' was removed or "
                "replaced"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is None:
            return
        # another folder may have taken the place of ours, with a lock of its own
        with suppress(OSError):
            if self._is_named(self._handle):
                self._path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as mistake:
            raise UserError(f"folder must be writable, got '{self._folder}': {mistake}") from (
                mistake
            )

    def _is_named(self, handle: int) -> bool:
        """Whether the file is still in its place: who had it before may have removed it."""
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False


def _lock(handle: int, folder: Path) -> None:
    try:
        # not there on Windows
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, ImportError) as mistake:
        if isinstance(mistake, OSError) and mistake.errno in HELD:
            raise UserError(
                f"folder must not be in use, and another process trains in '{folder}': "
                "wait for its end, or name another folder"
            ) from mistake
        warnings.warn(
            f"'{folder}' lies where files cannot be locked ({mistake}): "
            "take care that no other process trains there",
            stacklevel=2,
        )

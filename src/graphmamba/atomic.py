"""Atomic writes: to a temporary file beside the target, flushed, then renamed."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from graphmamba.errors import UnwritableError, UserError


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written under another name, then give it its own; a failure leaves the old one.

    Of several that write one file at a time the last one stays, as a whole.

    Args:
        path: Where the file belongs.
        write: Writes to the path that it is given.

    A link is followed, and what is no regular file (a pipe, a device) is written to directly.
    """
    try:
        path = path.resolve()
        if path.exists() and not path.is_file() and not path.is_dir():
            write(path)
            return
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise cannot_write(path, error) from error
    partial = path.with_name(f".{path.name}.{token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        flush(partial)
        partial.replace(path)
        # the new name lasts through a power cut only when the folder is on the disk too
        flush(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def cannot_write(path: Path, error: Exception) -> UnwritableError:
    """Say that a file could not be written."""
    return UnwritableError(f"'{path}' cannot be written ({error}); what was there before still is")


def cannot_read(path: Path) -> UserError:
    """Say that a file is there, but somebody else's."""
    return UserError(
        f"'{path}' must be a file that you may read, got no right to: ask its owner for it, "
        "or keep sets of your own under another root"
    )


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    atomic_write(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that a power cut finds it whole."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

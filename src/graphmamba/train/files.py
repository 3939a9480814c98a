"""Files that are either whole or not there: written beside their place, flushed, then renamed."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from graphmamba.errors import UserError

META = "graphmamba"
"""Key of a safetensors file's header under which our JSON is."""


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Have a file written under another name, then give it its own; a failure leaves the old one.

    Args:
        path: Where the file belongs.
        write: Writes to the path that it is given.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        _flush(partial)
        partial.replace(path)
        # the new name lasts through a power cut only when the folder is on the disk too
        _flush(path.parent)
    except BaseException as mistake:
        # where not even the folder is one, the first mistake is the one to tell
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(mistake, OSError):
            raise cannot_write(path, mistake) from mistake
        raise


def cannot_write(path: Path, mistake: OSError) -> UserError:
    """Say that a file could not be written."""
    return UserError(f"'{path}' cannot be written ({mistake}); what was there before still is")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""

    def write(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")

    write_whole(path, write)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Write tensors with a JSON description in the header, whole."""
    from safetensors.torch import save

    # several names for one storage, and views, are more than the format knows
    apart = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}

    def write(partial: Path) -> None:
        partial.write_bytes(save(apart, metadata={META: json.dumps(about)}))

    write_whole(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_tensors` wrote; never runs code of the file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"'{path}' must be a file, and there is none")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})[META])
    except (SafetensorError, OSError, ValueError) as mistake:
        raise UserError(f"'{path}' is corrupt or no safetensors file: {mistake}") from mistake
    except KeyError as mistake:
        raise UserError(f"'{path}' was not written by graphmamba: its header says nothing") from (
            mistake
        )
    if not isinstance(about, dict):
        raise UserError(f"'{path}' must be described by keys and values, got {about!r}")
    return tensors, about


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Raw files on disk -> arrays; whatever is wrong with a file is told with its name."""

import io
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphmamba.errors import UserError

DAMAGED = (
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading packed files ends with where bytes of them are others than were written."""


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of the names that is in the folder."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"folder {folder} must hold {' or '.join(names)}, got no such file")


def read_arrays(path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the named arrays of an `.npz`, or of one packed with xz; pickled objects are refused."""
    content = path.read_bytes()
    try:
        if path.suffix == ".xz":
            content = lzma.decompress(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for column in columns:
                if column not in arrays.files:
                    listed = ", ".join(arrays.files)
                    raise UserError(f"{path} must hold the array '{column}', got {listed}")
            return {column: arrays[column] for column in columns}
    except UserError:
        raise
    except DAMAGED as mistake:
        raise UserError(f"{path} must be a whole .npz file without objects: {mistake}") from mistake


def check_pointers(path: Path, name: str, pointers: np.ndarray, rows: int) -> None:
    """Refuse boundaries that do not rise from 0 to the number of rows."""
    check_integers(path, name, pointers)
    if len(pointers) < 1 or pointers[0] != 0 or pointers[-1] != rows:
        got = pointers[[0, -1]] if len(pointers) else "none"
        raise UserError(f"{path}: {name} must run from 0 to {rows}, got {got}")
    # A difference of unsigned numbers would never be below 0.
    falls = pointers[1:] < pointers[:-1]
    if falls.any():
        place = int(falls.argmax())
        raise UserError(
            f"{path}: {name} must never fall, got {pointers[place + 1]} after {pointers[place]}"
        )


def check_integers(
    path: Path, name: str, values: np.ndarray, end: int | None = None, axes: int = 1
) -> None:
    """Refuse what are no integers from 0 to below `end`, or have other axes."""
    if values.ndim != axes or not np.issubdtype(values.dtype, np.integer):
        raise UserError(
            f"{path}: {name} must hold integers, {axes}-dimensional, "
            f"got {values.dtype} of the shape {values.shape}"
        )
    if not values.size:
        return
    if values.min() < 0:
        raise UserError(f"{path}: {name} must not be negative, got {values.min()}")
    if end is not None and values.max() >= end:
        raise UserError(f"{path}: {name} must be below {end}, got {values.max()}")


def check_finite(path: Path, name: str, values: np.ndarray) -> None:
    """Refuse what are no numbers, or not finite ones."""
    if values.dtype.kind not in "iuf":
        raise UserError(f"{path}: {name} must hold numbers, got {values.dtype}")
    if not np.isfinite(values).all():
        got = values[~np.isfinite(values)][0]
        raise UserError(f"{path}: {name} must hold finite numbers, got {got}")

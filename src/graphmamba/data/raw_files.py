"""Raw files on disk -> arrays; whatever is wrong with a file is told with its name."""

import io
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

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
    if len(pointers) < 1 or pointers[0] != 0 or pointers[-1] != rows:
        raise UserError(f"{path}: {name} must run from 0 to {rows}, got {pointers[[0, -1]]}")
    if (np.diff(pointers) < 0).any():
        raise UserError(f"{path}: {name} must never fall, got {int(np.diff(pointers).min())}")


def boundaries(counts: Int[Tensor, " graphs"]) -> Int[Tensor, " boundaries"]:
    """From sizes to where each begins; the last entry is where all end."""
    return torch.nn.functional.pad(counts.long().cumsum(0), (1, 0))

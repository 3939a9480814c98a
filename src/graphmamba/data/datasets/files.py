"""Published files -> arrays; what is wrong with a file is said with its name."""

import gzip
import io
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

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
CIFAR_SIDE, CIFAR_COLOURS = 32, 3
_IDX_BYTES = 8
"""The code of unsigned bytes in the head of an idx file."""


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of the names that is in the folder."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"folder {folder} must hold {' or '.join(names)}, got no such file")


def read_arrays(path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the named arrays of an `.npz`, or of one packed with xz; objects are rejected."""
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
    except DAMAGED as error:
        raise UserError(f"{path} must be a whole .npz file without objects: {error}") from error


def read_names(path: Path) -> list[str]:
    """Read the words of a text file, such as names of images, one a line."""
    try:
        return path.read_text(encoding="utf-8").split()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be a list of names in UTF-8: {error}") from error


def check_pointers(path: Path, name: str, pointers: np.ndarray, rows: int) -> None:
    """Reject boundaries that do not rise from 0 to the number of rows."""
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
    """Reject what are no integers from 0 to below `end`, or have other axes."""
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
    """Reject what are no numbers, or not finite ones."""
    if values.dtype.kind not in "iuf":
        raise UserError(f"{path}: {name} must hold numbers, got {values.dtype}")
    if not np.isfinite(values).all():
        got = values[~np.isfinite(values)][0]
        raise UserError(f"{path}: {name} must hold finite numbers, got {got}")


def read_idx(path: Path, axes: int) -> UInt8[np.ndarray, "..."]:
    """Read MNIST's format, packed with gzip or not: a head with the lengths, then bytes."""
    content = _unpack(path)
    head = np.frombuffer(content, np.uint8, min(4, len(content)))
    if head.tolist() != [0, 0, _IDX_BYTES, axes]:
        raise UserError(
            f"{path} must be an idx file of bytes with {axes} axes, got the head {head.tolist()}"
        )
    begin = 4 * (1 + axes)
    if len(content) < begin:
        raise UserError(f"{path} must begin with {axes} lengths, got {len(content)} bytes in all")
    lengths = [int(length) for length in np.frombuffer(content, ">u4", axes, 4)]
    size = begin + int(np.prod(lengths))
    if not all(lengths) or len(content) != size:
        raise UserError(
            f"{path} must have {size} bytes for the lengths {lengths}, none of them 0, "
            f"got {len(content)}"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(lengths)


def read_cifar(
    path: Path,
) -> tuple[UInt8[np.ndarray, "images 32 32 3"], UInt8[np.ndarray, " images"]]:
    """Read CIFAR10's binary version: for each image its class, then the red, green, blue planes."""
    row = 1 + CIFAR_COLOURS * CIFAR_SIDE**2
    content = _unpack(path)
    if not content or len(content) % row:
        raise UserError(f"{path} must have {row} bytes for each image, got {len(content)}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, row)
    planes = rows[:, 1:].reshape(-1, CIFAR_COLOURS, CIFAR_SIDE, CIFAR_SIDE)
    return planes.transpose(0, 2, 3, 1), rows[:, 0]


def read_picture(path: Path) -> UInt8[np.ndarray, "height width 3"]:
    """Read a photograph; grey ones have three equal colours."""
    return _pixels(path, "RGB")


def read_class_mask(path: Path) -> UInt8[np.ndarray, "height width"]:
    """Read an image whose bytes are class numbers: grey, or through a palette that is ignored."""
    pixels = _pixels(path, None)
    if pixels.dtype != np.uint8 or pixels.ndim != 2:  # noqa: PLR2004
        raise UserError(
            f"{path} must hold a class number from 0 to 255 for each pixel, "
            f"got {pixels.dtype} of the shape {pixels.shape}"
        )
    return pixels


def _pixels(path: Path, mode: str | None) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError as missing:
        raise UserError(
            "images need Pillow: pip install 'graphmamba[images]', or pillow"
        ) from missing
    if not path.is_file():
        raise UserError(f"folder {path.parent} must hold {path.name}, got no such file")
    try:
        with Image.open(path) as image:
            return np.asarray(image if mode is None else image.convert(mode))
    except (OSError, ValueError, SyntaxError) as error:
        raise UserError(f"{path} must be a whole image: {error}") from error


def _unpack(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} must be a whole gzip file: {error}") from error

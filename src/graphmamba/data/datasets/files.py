"""Readers of file formats; errors name the file."""

import gzip
import io
import lzma
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from graphmamba.errors import UserError

CIFAR_SIDE, CIFAR_COLOURS = 32, 3


class MissingFileError(UserError):
    """A folder without the files that a reader looks for."""


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of the names that is in the folder."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise MissingFileError(f"folder {folder} must hold {' or '.join(names)}, got no such file")


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Name the file in whatever error its bytes bring about: libraries raise all there are."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} must be {kind}: {error}") from error


def read_arrays(path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the named arrays of an `.npz`, or of one packed with xz; objects are rejected."""
    with reading(path, f"a whole .npz file of {', '.join(columns)} without objects"):
        content = path.read_bytes()
        if path.suffix == ".xz":
            content = lzma.decompress(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {column: arrays[column] for column in columns}


def read_names(path: Path) -> list[str]:
    """Read the words of a text file, such as names of images, one a line."""
    with reading(path, "a list of names in UTF-8"):
        names = path.read_text(encoding="utf-8").split()
    if not names:
        raise UserError(f"{path} must hold at least one name, got none")
    return names


def read_idx(path: Path, axes: int) -> UInt8[np.ndarray, "..."]:
    """Read MNIST's format, packed with gzip or not: a head with the lengths, then bytes."""
    content, begin = _unpack(path), 4 * (1 + axes)
    with reading(path, f"a whole idx file of bytes with {axes} axes"):
        # 8 is the code of unsigned bytes
        if content[:4] != bytes([0, 0, 8, axes]):
            raise ValueError(f"its head is {list(content[:4])}")
        lengths = np.frombuffer(content, ">u4", axes, 4).tolist()
        return np.frombuffer(content, np.uint8, offset=begin).reshape(lengths)


def read_cifar(
    path: Path,
) -> tuple[UInt8[np.ndarray, "images 32 32 3"], UInt8[np.ndarray, " images"]]:
    """Read CIFAR10's binary version: for each image its class, then the red, green, blue planes."""
    with reading(path, "a whole file of CIFAR10's binary version"):
        rows = np.frombuffer(_unpack(path), np.uint8).reshape(-1, 1 + CIFAR_COLOURS * CIFAR_SIDE**2)
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
    with reading(find_file(path.parent, path.name), "a whole image"), Image.open(path) as image:
        return np.asarray(image if mode is None else image.convert(mode))


def _unpack(path: Path) -> bytes:
    with reading(path, "a whole gzip file"):
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content

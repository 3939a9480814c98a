"""Image files in the formats that data sets are published in -> arrays of bytes."""

import gzip
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from graphmamba.errors import UserError

CIFAR_SIDE, CIFAR_COLOURS = 32, 3
_IDX_BYTES = 8
"""The code of unsigned bytes in the head of an idx file."""


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
    except (OSError, ValueError, SyntaxError) as mistake:
        raise UserError(f"{path} must be a whole image: {mistake}") from mistake


def _unpack(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as mistake:
        raise UserError(f"{path} must be a whole gzip file: {mistake}") from mistake

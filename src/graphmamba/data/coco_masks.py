"""Outlines and run lengths of COCO's annotations -> the class of each pixel.

Formats: https://cocodataset.org/#format-data. Polygons are lists x, y, x, y, ... in which pixel
(0, 0) reaches from 0 to 1; run lengths go down the columns and begin with the background's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from graphmamba.data.slic import import_skimage
from graphmamba.errors import UserError

_FIRST, _BITS, _MORE, _SIGN = 48, 5, 32, 16
"""Packed runs: five bits a letter, counted from "0"; a bit for more letters, one for the sign."""


def draw_classes(
    objects: Sequence[Mapping[str, Any]], classes: Mapping[int, int], height: int, width: int
) -> UInt8[np.ndarray, "height width"]:
    """Class of each pixel; where objects overlap, the class with the larger number is seen."""
    drawn = np.zeros((height, width), np.uint8)
    for each in objects:
        if each["category_id"] not in classes:
            raise UserError(
                f"annotation {each['id']}: category_id must be one of the file's categories, "
                f"got {each['category_id']!r}"
            )
        is_inside = draw_object(each, height, width)
        drawn[is_inside] = np.maximum(drawn[is_inside], classes[each["category_id"]])
    return drawn


def draw_object(
    annotation: Mapping[str, Any], height: int, width: int
) -> Bool[np.ndarray, "height width"]:
    """Pixels of one object."""
    outline = annotation["segmentation"]
    try:
        if isinstance(outline, list):
            return _fill(outline, height, width)
        if list(outline["size"]) != [height, width]:
            raise ValueError(f"size must be {[height, width]}, got {outline['size']}")
        counts = outline["counts"]
        runs = unpack_runs(counts) if isinstance(counts, str) else counts
        return _expand(runs, height, width)
    except (ValueError, TypeError, LookupError) as mistake:
        raise UserError(
            f"annotation {annotation['id']}: segmentation must be polygons or run lengths: "
            f"{mistake}"
        ) from mistake


def unpack_runs(packed: str) -> list[int]:
    """Run lengths from their packed text; from the fourth on each is relative to the last but one.

    Each number is written in groups of five bits, the lowest first.
    """
    runs: list[int] = []
    value = shift = 0
    for letter in packed.encode("ascii"):
        code = letter - _FIRST
        if not 0 <= code < 2 * _MORE:
            raise ValueError(f"packed runs must have letters from '0' to 'o', got {chr(letter)!r}")
        value |= (code & (_MORE - 1)) << shift
        shift += _BITS
        if code & _MORE:
            continue
        if code & _SIGN:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))  # noqa: PLR2004
        value = shift = 0
    if shift:
        raise ValueError("packed runs must end with a number that is whole")
    return runs


def _expand(runs: Sequence[Any], height: int, width: int) -> Bool[np.ndarray, "height width"]:
    lengths = np.asarray(runs, np.int64)
    if lengths.ndim != 1 or (lengths < 0).any() or int(lengths.sum()) != height * width:
        raise ValueError(f"runs must add up to {height * width} pixels, got {int(lengths.sum())}")
    # odd ones are the object's
    is_inside = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return is_inside.reshape(width, height).T


def _fill(polygons: Sequence[Any], height: int, width: int) -> Bool[np.ndarray, "height width"]:
    is_inside = np.zeros((height, width), dtype=bool)
    for polygon in polygons:
        points = np.asarray(polygon, np.float64)
        if points.ndim != 1 or len(points) % 2 or not np.isfinite(points).all():
            raise ValueError(f"a polygon must be pairs of finite numbers, got {polygon}")
        points = points.reshape(-1, 2)
        # a pixel is inside where its middle is, half a pixel from the corner that names it
        rows, columns = import_skimage("draw").polygon(
            points[:, 1] - 0.5, points[:, 0] - 0.5, (height, width)
        )
        is_inside[rows, columns] = True
    return is_inside

"""Superpixels by SLIC, as the published sets have them (needs the extra `images`).

Simple linear iterative clustering (https://doi.org/10.1109/TPAMI.2012.120): pixels gather around
the nearest of the groups that start on a grid, by colour and by place. The published sets were made
with scikit-image before 0.19, whose habits are kept: colours are not stretched to [0, 1] first, and
the limits of a region's size follow from the number of regions asked for, not from the grid's.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from graphmamba.errors import UserError

ITERATIONS = 10
SMALLEST, LARGEST = 0.5, 3.0
"""A region's size, in parts of the size that it would have if all were alike."""


@dataclass(frozen=True)
class SlicRecipe:
    """How many regions are wanted, and how much place weighs against colour."""

    most: int
    """Regions of an image at most."""
    asked: int
    """Regions asked for first; one less each time, until there are few enough."""
    compactness: float
    """Large values make square regions, small ones follow the colours."""


@dataclass(frozen=True)
class Grid:
    """Where groups of pixels start."""

    centre: Float[np.ndarray, "groups 2"]
    window: Float[np.ndarray, "2"]
    """How far from its centre a group looks for pixels, down and across."""
    step: float
    """Pixels from one centre to the next, the longer of both ways."""


def find_superpixels(
    image: UInt8[np.ndarray, "height width channels"], recipe: SlicRecipe
) -> Int[np.ndarray, "height width"]:
    """Number of each pixel's region, from 0 without gaps, row by row; 1 or 3 channels."""
    # Numba is slow to import, and whoever opens a finished set needs none of this
    from graphmamba.data.slic_kernels import cluster, connect

    colours = (image / 255).astype(np.float32).astype(np.float64)
    if image.shape[2] > 1:
        colours = import_skimage("color").rgb2lab(colours)
    planes = np.ascontiguousarray(colours.transpose(2, 0, 1) * (1.0 / recipe.compactness))
    height, width = image.shape[:2]
    before: Grid | None = None
    groups = np.empty((0, 0), np.int64)
    for asked in range(recipe.asked, 0, -1):
        grid = lay_grid(height, width, asked)
        # a request for one region less seldom moves the grid, and only the grid decides here
        if grid is not before:
            groups, before = cluster(planes, grid.centre, grid.window, grid.step, ITERATIONS), grid
        size = height * width / asked
        regions, count = connect(groups, int(SMALLEST * size), int(LARGEST * size))
        if count <= recipe.most:
            break
    return regions


@lru_cache(maxsize=10_000)
def lay_grid(height: int, width: int, asked: int) -> Grid:
    """Spread about as many centres as are asked for; requests that agree share one grid."""
    rows, columns = _slices(height, width, asked)
    return _grid_of(height, width, rows, columns)


@lru_cache(maxsize=1_000)
def _grid_of(height: int, width: int, rows: tuple[int, int], columns: tuple[int, int]) -> Grid:
    across, down = np.meshgrid(
        np.arange(width)[slice(columns[0], None, columns[1])],
        np.arange(height)[slice(rows[0], None, rows[1])],
    )
    centre = np.stack([down.ravel(), across.ravel()], axis=1).astype(np.float64)
    # the window follows from the number of centres, which is near the number asked for
    (_, high), (_, wide) = _slices(height, width, len(centre))
    window = np.array([2.0 * high, 2.0 * wide])
    return Grid(centre, window, float(max(rows[1], columns[1])))


def _slices(height: int, width: int, points: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """First row and its step, first column and its step."""
    slices = import_skimage("util").regular_grid((1, height, width), points)
    rows, columns = ((int(each.start or 0), int(each.step or 1)) for each in slices[1:])
    return rows, columns


def import_skimage(part: str) -> Any:
    """One of scikit-image's modules, or what to install."""
    from importlib import import_module

    try:
        return import_module(f"skimage.{part}")
    except ImportError as missing:
        raise UserError(
            "images need scikit-image: pip install 'graphmamba[images]', or scikit-image"
        ) from missing

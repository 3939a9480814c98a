"""Superpixels by SLIC, and the graphs of regions that touch (needs the extra `images`).

Simple linear iterative clustering (https://doi.org/10.1109/TPAMI.2012.120): pixels gather around
the nearest of the groups that start on a grid, by colour and by place. The published sets were made
with scikit-image before 0.19, whose habits are kept: colours are not stretched to [0, 1] first, and
the limits of a region's size follow from the number of regions asked for, not from the grid's.

PascalVOC-SP and COCO-SP join the regions of a photograph where they touch: Long Range Graph
Benchmark (https://arxiv.org/abs/2206.08164), compactness 30. Node columns are the mean, deviation,
maximum and minimum of red, green and blue, then the centre's row and column in pixels, rounded to
float16 as published. Edge columns are the mean of the Sobel filter on the boundary, and how often
a pixel of one region lies beside the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, Int, Int16, UInt8

from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

ITERATIONS = 10
SMALLEST, LARGEST = 0.5, 3.0
"""A region's size, in parts of the size that it would have if all were alike."""


@dataclass(frozen=True)
class SlicRecipe:
    """How many regions are wanted, and how much place weighs against colour."""

    most: int  # regions of an image at most
    asked: int  # regions asked for first; one less each time, until there are few enough
    compactness: float  # large values make square regions, small ones follow the colours


PHOTOGRAPH = SlicRecipe(most=500, asked=550, compactness=30.0)


def find_superpixels(
    image: UInt8[np.ndarray, "height width channels"], recipe: SlicRecipe
) -> Int[np.ndarray, "height width"]:
    """Number of each pixel's region, from 0 without gaps, row by row; 1 or 3 channels."""
    # Numba is slow to import, and whoever opens a finished set needs none of this
    from graphmamba.data.datasets.slic_kernels import cluster, connect

    colours = (image / 255).astype(np.float32).astype(np.float64)
    if image.shape[2] > 1:
        colours = import_skimage("color").rgb2lab(colours)
    planes = np.ascontiguousarray(colours.transpose(2, 0, 1) * (1.0 / recipe.compactness))
    height, width = image.shape[:2]
    before: Slices | None = None
    groups = np.empty((0, 0), np.int64)
    for asked in range(recipe.asked, 0, -1):
        (first_row, down), (first_column, across) = grid = _slices(height, width, asked)
        # a request for one region less seldom moves the grid, and only the grid decides here
        if grid != before:
            rows, columns = (
                np.arange(first_row, height, down),
                np.arange(first_column, width, across),
            )
            centre = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=2).reshape(-1, 2)
            # the window follows from the number of centres, which is near the number asked for
            (_, high), (_, wide) = _slices(height, width, len(centre))
            window = np.array([2.0 * high, 2.0 * wide])
            step = float(max(down, across))
            groups = cluster(planes, centre.astype(np.float64), window, step, ITERATIONS)
            before = grid
        size = height * width / asked
        regions, count = connect(groups, int(SMALLEST * size), int(LARGEST * size))
        if count <= recipe.most:
            break
    return regions


Slices = tuple[tuple[int, int], tuple[int, int]]


@lru_cache(maxsize=10_000)
def _slices(height: int, width: int, points: int) -> Slices:
    """First row and step of a grid of about so many points, then first column and its step."""
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


@dataclass(frozen=True)
class RegionGraph:
    """The regions of one photograph, in few bytes: COCO has 123,287 of them."""

    x: Float16[np.ndarray, "nodes 14"]
    y: UInt8[np.ndarray, " nodes"]  # class of the pixel at each region's centre
    ends: Int16[np.ndarray, "2 boundaries"]
    """Both regions of each boundary, the one with the smaller number first."""
    boundary: Float32[np.ndarray, "boundaries 2"]


def find_regions(
    image: UInt8[np.ndarray, "height width 3"],
    classes: UInt8[np.ndarray, "height width"],
    recipe: SlicRecipe = PHOTOGRAPH,
) -> RegionGraph:
    """Cut a photograph into regions and join those that touch; a lone region has a self-loop."""
    regions = find_superpixels(image, recipe)
    colours = (image / 255).astype(np.float32).astype(np.float64)
    edges = import_skimage("filters").sobel(import_skimage("color").rgb2gray(colours))
    ends, boundary = join_touching(regions, edges)
    if not regions.any():
        ends, boundary = np.zeros((2, 1), np.int64), np.zeros((1, 2))
    x = describe(regions, colours)
    row, column = np.rint(x[:, -2:]).astype(np.int64).T
    return RegionGraph(
        x=x.astype(np.float16),
        y=classes[row, column],
        ends=ends.astype(np.int16),
        boundary=boundary.astype(np.float32),
    )


def describe(
    regions: Int[np.ndarray, "height width"], colours: Float[np.ndarray, "height width 3"]
) -> Float[np.ndarray, "nodes 14"]:
    """Mean, deviation, maximum and minimum of each colour, and the centre, of each region."""
    number = regions.ravel()
    size = np.bincount(number)
    order = np.argsort(number, kind="stable")
    starts = np.cumsum(size) - size
    planes = colours.reshape(-1, 3).T
    mean = np.stack([np.bincount(number, plane) / size for plane in planes])  # [3, nodes]
    squares = (planes - mean[:, number]) ** 2
    deviation = np.sqrt(np.stack([np.bincount(number, square) / size for square in squares]))
    highest = np.maximum.reduceat(planes[:, order], starts, axis=1)
    lowest = np.minimum.reduceat(planes[:, order], starts, axis=1)
    place = np.indices(regions.shape).reshape(2, -1)
    centre = np.stack([np.bincount(number, axis) / size for axis in place])
    return np.concatenate([mean, deviation, highest, lowest, centre]).T


def join_touching(
    regions: Int[np.ndarray, "height width"], edges: Float[np.ndarray, "height width"]
) -> tuple[Int[np.ndarray, "2 boundaries"], Float[np.ndarray, "boundaries 2"]]:
    """Boundaries as scikit-image's `rag_boundary` counts them.

    A pixel counts towards the boundary with the lowest and with the highest number among the eight
    pixels around it, where these are not its own.
    """
    from scipy.ndimage import maximum_filter, minimum_filter

    lowest, highest = minimum_filter(regions, size=3), maximum_filter(regions, size=3)
    is_above, is_below = lowest != regions, highest != regions
    small = np.concatenate([lowest[is_above], regions[is_below]])
    large = np.concatenate([regions[is_above], highest[is_below]])
    strength = np.concatenate([edges[is_above], edges[is_below]])
    whole = int(regions.max()) + 1
    pair, number = np.unique(small * whole + large, return_inverse=True)
    count = np.bincount(number, minlength=len(pair))
    mean = np.bincount(number, strength, minlength=len(pair)) / count
    return np.stack([pair // whole, pair % whole]), np.stack([mean, count], axis=1)


def columns_of_regions(graphs: Sequence[RegionGraph]) -> GraphColumns:
    """Lay the graphs end to end; boundaries go both ways, a self-loop is already both."""
    ways = [_both_ways(graph) for graph in graphs]
    x = np.concatenate([graph.x for graph in graphs])
    y = np.concatenate([graph.y for graph in graphs])
    edge_index = np.concatenate([ends for ends, _ in ways], axis=1)
    return GraphColumns(
        node_ptr=boundaries(torch.tensor([len(graph.y) for graph in graphs])),
        edge_ptr=boundaries(torch.tensor([ends.shape[1] for ends, _ in ways])),
        edge_index=torch.from_numpy(edge_index).long(),
        nodes={"x": torch.from_numpy(x).float(), "y": torch.from_numpy(y).long()},
        edges={"edge_attr": torch.from_numpy(np.concatenate([values for _, values in ways]))},
    )


def _both_ways(
    graph: RegionGraph,
) -> tuple[Int16[np.ndarray, "2 edges"], Float32[np.ndarray, "edges 2"]]:
    is_loop = graph.ends[0] == graph.ends[1]
    ends = np.concatenate([graph.ends, graph.ends[::-1, ~is_loop]], axis=1)
    return ends, np.concatenate([graph.boundary, graph.boundary[~is_loop]])

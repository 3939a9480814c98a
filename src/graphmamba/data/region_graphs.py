"""A photograph with its classes -> regions joined where they touch: PascalVOC-SP and COCO-SP.

Recipe: Long Range Graph Benchmark (https://arxiv.org/abs/2206.08164), compactness 30. Node columns
are the mean, deviation, maximum and minimum of red, green and blue, then the centre's row and
column in pixels, rounded to float16 as published. Edge columns are the mean of the Sobel filter on
the boundary, and how often a pixel of one region lies beside the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, Int, Int16, UInt8

from graphmamba.data.slic import SlicRecipe, find_superpixels, import_skimage
from graphmamba.data.tables import GraphColumns, boundaries

PHOTOGRAPH = SlicRecipe(most=500, asked=550, compactness=30.0)


@dataclass(frozen=True)
class RegionGraph:
    """The regions of one photograph, in few bytes: COCO has 123,287 of them."""

    x: Float16[np.ndarray, "nodes 14"]
    y: UInt8[np.ndarray, " nodes"]
    """Class of the pixel at each region's centre."""
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

"""Superpixels and graphs of regions are those that scikit-image makes."""

import numpy as np
import pytest

from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.slic import (
    PHOTOGRAPH,
    SlicRecipe,
    columns_of_regions,
    describe,
    find_regions,
    find_superpixels,
    join_touching,
)
from graphmamba.data.datasets.superpixels import CIFAR_RECIPE, MNIST_RECIPE
from tests.helpers.image_files import photographs, quarters, smooth_noise

pytest.importorskip("skimage")
FOUR = SlicRecipe(4, 4, 1.0)
NOT_JOINED = {(1, 2), (2, 1)}
CLASSES = np.array([[0, 3], [20, 1]], np.uint8)


def superpixels_written_out(image: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """scikit-image's own, asked again each time, with its newer habits undone.

    It stretches colours to [0, 1], which a compactness divided by the same undoes, and takes the
    limits of sizes from the number of the grid's centres; the factors here give back the others.
    """
    from skimage.color import rgb2lab
    from skimage.segmentation import slic
    from skimage.util import regular_grid

    colours = (image / 255).astype(np.float32).astype(np.float64)
    colours = rgb2lab(colours) if image.shape[2] == 3 else colours
    stretched = np.ptp(colours)
    pixels = image.shape[0] * image.shape[1]
    for asked in range(recipe.asked, 0, -1):
        grid = np.empty((1, *image.shape[:2]))[regular_grid((1, *image.shape[:2]), asked)]
        smallest, largest = (
            (int(factor * pixels / asked) + 0.5) / (pixels / grid.size) for factor in (0.5, 3)
        )
        regions = slic(
            colours,
            asked,
            recipe.compactness / stretched,
            convert2lab=False,
            start_label=0,
            channel_axis=-1,
            min_size_factor=smallest,
            max_size_factor=largest,
        )
        if len(np.unique(regions)) <= recipe.most:
            return regions
    raise AssertionError


@pytest.mark.parametrize(
    ("shape", "recipe"),
    [
        ((28, 28, 1), MNIST_RECIPE),
        ((32, 32, 3), CIFAR_RECIPE),
        ((60, 90, 3), SlicRecipe(40, 60, 30.0)),
        ((90, 61, 3), SlicRecipe(70, 75, 5.0)),
        ((33, 120, 1), SlicRecipe(100, 110, 0.1)),
    ],
    ids=["mnist", "cifar10", "wide", "high", "grey"],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_regions_are_those_of_scikit_image(
    shape: tuple[int, int, int], recipe: SlicRecipe, seed: int
) -> None:
    image = smooth_noise(*shape, seed=seed)
    regions = find_superpixels(image, recipe)
    assert np.array_equal(regions, superpixels_written_out(image, recipe))


def test_regions_of_a_photograph_are_those_of_scikit_image() -> None:
    cat = np.asarray(photographs()[1].resize((150, 100)))
    recipe = SlicRecipe(most=190, asked=200, compactness=PHOTOGRAPH.compactness)
    assert np.array_equal(find_superpixels(cat, recipe), superpixels_written_out(cat, recipe))


def test_there_are_never_more_regions_than_allowed_nor_gaps() -> None:
    from scipy.ndimage import label

    for most in (1, 2, 7, 30):
        regions = find_superpixels(smooth_noise(31, 40, 3), SlicRecipe(most, 50, 10.0))
        numbers = np.unique(regions)
        assert numbers.tolist() == list(range(len(numbers)))
        assert 1 <= len(numbers) <= most
        if most == 30:
            assert len(numbers) > 15
            assert all(label(regions == number)[1] == 1 for number in numbers)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_smallest_images_pass(shape: tuple[int, int], channels: int) -> None:
    image = np.arange(np.prod(shape) * channels, dtype=np.uint8).reshape(*shape, channels)
    regions = find_superpixels(image, PHOTOGRAPH)
    # fewer pixels than regions asked for: each pixel is one
    assert np.array_equal(regions, np.arange(regions.size).reshape(shape))


def test_four_quarters_are_four_regions_that_touch() -> None:
    classes = CLASSES.repeat(10, 0).repeat(12, 1)
    graph = find_regions(quarters(20, 24), classes, FOUR)
    full = float(np.float16(200 / 255))
    flat = [[full, 0, 0], [0, full, 0], [0, 0, full], [full, full, 0]]
    # mean, no deviation, highest and lowest
    for begin, expected in ((0, flat), (3, np.zeros((4, 3))), (6, flat), (9, flat)):
        np.testing.assert_allclose(graph.x[:, begin : begin + 3], expected, atol=1e-6)
    assert graph.x[:, 12:].tolist() == [[4.5, 5.5], [4.5, 17.5], [14.5, 5.5], [14.5, 17.5]]
    assert graph.y.tolist() == [0, 3, 20, 1]
    assert graph.ends.T.tolist() == [[0, 1], [0, 2], [0, 3], [1, 3], [2, 3]]
    # Regions 0 and 1 touch along ten rows, ten pixels on either side; but the highest number around
    # the corner of 0 is 3. Around the corners of 1 and 2 there is 0 and 3, so that these two never
    # meet: each pixel counts for the lowest and the highest number beside it alone.
    assert graph.boundary[:, 1].tolist() == [9 + 10, 11 + 12, 1 + 1, 12 + 11, 10 + 9]
    assert (graph.boundary[:, 0] > 0).all()


def test_the_class_is_that_of_the_pixel_at_the_centre() -> None:
    classes = np.zeros((20, 24), np.uint8)
    # centres 4.5 and 14.5 are rounded to the even neighbours 4 and 14; 5.5 to 6, 17.5 to 18
    for place, (row, column) in enumerate(((4, 6), (4, 18), (14, 6), (14, 18)), start=1):
        classes[row, column] = place
    assert find_regions(quarters(20, 24), classes, FOUR).y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_boundaries_are_those_of_scikit_image(seed: int) -> None:
    from skimage.graph import rag_boundary

    image = smooth_noise(40, 55, 3, seed)
    regions = find_superpixels(image, SlicRecipe(40, 50, 30.0))
    strength = np.random.default_rng(seed).random(regions.shape)
    ends, boundary = join_touching(regions, strength)
    expected = {
        (min(pair), max(pair)): (values["weight"], values["count"])
        for *pair, values in rag_boundary(regions, strength).edges(data=True)
    }
    assert len(expected) > 40
    found = dict(zip(map(tuple, ends.T.tolist()), map(tuple, boundary.tolist()), strict=True))
    assert found.keys() == expected.keys()
    for pair, values in found.items():
        assert values == pytest.approx(expected[pair])


def test_columns_are_those_of_each_region_by_itself() -> None:
    image = smooth_noise(30, 41, 3)
    regions = find_superpixels(image, SlicRecipe(20, 25, 5.0))
    colours = image / 255
    columns = describe(regions, colours)
    assert columns.shape == (regions.max() + 1, 14)
    for number, row in enumerate(columns):
        own = colours[regions == number]
        centre = np.argwhere(regions == number).mean(axis=0)
        expected = [*own.mean(0), *own.std(0), *own.max(0), *own.min(0), *centre]
        np.testing.assert_allclose(row, expected)


def test_photographs_have_as_many_regions_and_boundaries_as_published() -> None:
    # as large as those of VOC, two of them upright
    sizes = [(500, 375), (375, 500)] * 2
    images = [
        np.asarray(photograph.resize(size))
        for photograph, size in zip(photographs(), sizes, strict=True)
    ]
    graphs = [find_regions(image, np.zeros(image.shape[:2], np.uint8)) for image in images]
    published = CATALOG["pascalvoc-sp"]
    nodes, edges = (len(graph.y) for graph in graphs), (2 * len(graph.boundary) for graph in graphs)
    # single photographs differ by 5 %, sets of four by less
    assert sum(nodes) / 4 == pytest.approx(published.mean_nodes, rel=0.03)
    assert sum(edges) / 4 == pytest.approx(published.mean_edges, rel=0.03)


def test_a_lone_region_has_a_self_loop_without_features() -> None:
    image = np.full((6, 6, 3), 51, np.uint8)
    lone = find_regions(image, np.full((6, 6), 2, np.uint8), SlicRecipe(1, 1, 30.0))
    assert lone.ends.tolist() == [[0], [0]]
    assert lone.boundary.tolist() == [[0, 0]]
    assert lone.y.tolist() == [2]
    np.testing.assert_allclose(lone.x[0, :3], 0.2, rtol=1e-3)


def test_graphs_lie_end_to_end_with_boundaries_both_ways() -> None:
    classes = CLASSES.repeat(10, 0).repeat(12, 1)
    four = find_regions(quarters(20, 24), classes, FOUR)
    lone = find_regions(np.zeros((6, 6, 3), np.uint8), classes[:6, :6], SlicRecipe(1, 1, 30.0))
    columns = columns_of_regions([four, lone, four])
    assert columns.node_ptr.tolist() == [0, 4, 5, 9]
    assert columns.edge_ptr.tolist() == [0, 10, 11, 21]
    for begin, end in ((0, 10), (11, 21)):
        pairs = map(tuple, columns.edge_index[:, begin:end].T.tolist())
        values = columns.edges["edge_attr"][begin:end].tolist()
        edges = dict(zip(pairs, values, strict=True))
        assert set(edges) == {(i, j) for i in range(4) for j in range(4) if i != j} - NOT_JOINED
        assert all(value == edges[j, i] for (i, j), value in edges.items())
    assert columns.edge_index[:, 10].tolist() == [0, 0]
    assert columns.nodes["y"].tolist() == [0, 3, 20, 1, 0, 0, 3, 20, 1]
    assert str(columns.nodes["x"].dtype) == "torch.float32"

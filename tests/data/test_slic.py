"""Superpixels: the same as scikit-image's, and what few pixels and flat colours give."""

import numpy as np
import pytest

from graphmamba.data.region_graphs import PHOTOGRAPH
from graphmamba.data.slic import SlicRecipe, find_superpixels
from graphmamba.data.superpixels_of_images import CIFAR_RECIPE, MNIST_RECIPE
from graphmamba.errors import UserError
from tests.helpers.image_files import photographs, quarters, smooth_noise

pytest.importorskip("skimage")


def superpixels_written_out(image: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """scikit-image's own, asked anew each time, with its newer habits undone.

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


def test_four_flat_quarters_are_four_regions() -> None:
    regions = find_superpixels(quarters(20, 24), SlicRecipe(4, 4, 1.0))
    assert np.array_equal(regions, np.array([[0, 1], [2, 3]]).repeat(10, 0).repeat(12, 1))


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


def test_a_flat_image_is_cut_into_a_grid() -> None:
    regions = find_superpixels(np.full((40, 40, 3), 77, np.uint8), SlicRecipe(16, 16, 10.0))
    # pixels half way belong to the region that comes first
    sides = [11, 10, 10, 9]
    assert np.bincount(regions.ravel()).tolist() == np.outer(sides, sides).ravel().tolist()


def test_what_to_install_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "skimage.color", None)
    with pytest.raises(UserError, match=r"images need scikit-image: pip install 'graphmamba\[im"):
        find_superpixels(quarters(4, 4), PHOTOGRAPH)

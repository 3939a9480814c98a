"""MNIST and CIFAR10 from their raw images: superpixels, each joined to the 8 nearest.

Recipe: Knyazev et al., https://arxiv.org/abs/1905.02850, for the superpixels, with random order;
Dwivedi et al. (see `superpixels.py`) for the graph. Numbers are rounded as the published files
are, to float16.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from graphmamba.data.image_files import read_cifar, read_idx
from graphmamba.data.parallel import run_all
from graphmamba.data.raw_files import find_file
from graphmamba.data.slic import SlicRecipe, find_superpixels
from graphmamba.data.superpixels import CLASSES, join_superpixels, read_superpixels, split_of
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

MNIST_NODES, CIFAR_NODES = "mnist_75sp.npz", "cifar10_150sp.npz"
MNIST_IMAGES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
MNIST_LABELS = ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte")
CIFAR_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR_TEST = "test_batch.bin"
CIFAR_PICKLE = "data_batch_1"
MNIST_FILES = (
    f"{MNIST_NODES}[.xz], or {{train,t10k}}-images-idx3-ubyte[.gz] and "
    "{train,t10k}-labels-idx1-ubyte[.gz]"
)
CIFAR_FILES = f"{CIFAR_NODES}[.xz], or data_batch_{{1,2,3,4,5}}.bin and {CIFAR_TEST}"
MNIST_RECIPE = SlicRecipe(most=75, asked=95, compactness=0.25)
CIFAR_RECIPE = SlicRecipe(most=150, asked=200, compactness=10.0)
SHUFFLE_SEED = 111
BLOCK = 64
"""Images that one thread takes at a time."""


def read_mnist(folder: Path) -> GraphColumns:
    """Read superpixels where the folder has them, and else make them of the raw images."""
    if _holds_any(folder, MNIST_NODES, f"{MNIST_NODES}.xz"):
        return read_superpixels(folder, MNIST_NODES, colours=1)
    images, labels = [], []
    for image_file, label_file in zip(MNIST_IMAGES, MNIST_LABELS, strict=True):
        path = _find(folder, image_file, f"{image_file}.gz", files=MNIST_FILES)
        images.append(read_idx(path, 3)[..., None])
        path = _find(folder, label_file, f"{label_file}.gz", files=MNIST_FILES)
        labels.append(read_idx(path, 1))
        _check_labels(path, labels[-1], len(images[-1]))
    if images[0].shape[1:] != images[1].shape[1:]:
        raise UserError(
            f"folder {folder}: test images must have the training images' shape "
            f"{images[0].shape[1:3]}, got {images[1].shape[1:3]}"
        )
    return superpixels_of(
        np.concatenate(images),
        np.concatenate(labels),
        len(labels[1]),
        MNIST_RECIPE,
        "built from MNIST's images",
    )


def read_cifar10(folder: Path) -> GraphColumns:
    """Read superpixels where the folder has them, and else make them of the raw images."""
    if _holds_any(folder, CIFAR_NODES, f"{CIFAR_NODES}.xz"):
        return read_superpixels(folder, CIFAR_NODES, colours=3)
    if _holds_any(folder, CIFAR_PICKLE):
        raise UserError(
            f"folder {folder} must hold CIFAR10's binary version, {CIFAR_TRAIN[0]} and so on, got "
            f"{CIFAR_PICKLE}: the Python version is made of pickles, which are never loaded"
        )
    images, labels = [], []
    for file in (*CIFAR_TRAIN, CIFAR_TEST):
        path = _find(folder, file, files=CIFAR_FILES)
        some, of_some = read_cifar(path)
        _check_labels(path, of_some, len(some))
        images.append(some)
        labels.append(of_some)
    return superpixels_of(
        np.concatenate(images),
        np.concatenate(labels),
        len(labels[-1]),
        CIFAR_RECIPE,
        "built from CIFAR10's images",
    )


def superpixels_of(
    images: UInt8[np.ndarray, "images height width colours"],
    labels: UInt8[np.ndarray, " images"],
    test: int,
    recipe: SlicRecipe,
    source: str,
) -> GraphColumns:
    """Find the superpixels of all images and join them; the last `test` images are for testing."""
    starts = range(0, len(images), BLOCK)
    found: dict[int, list[Float[np.ndarray, "nodes columns"]]] = {}

    def work(start: int) -> None:
        numbers = range(start, min(start + BLOCK, len(images)))
        found[start] = [shuffled_nodes(images[number], recipe, number) for number in numbers]

    run_all(work, starts, "Superpixels")
    nodes = [each for start in starts for each in found[start]]
    counts: Int[Tensor, " images"] = torch.tensor([len(each) for each in nodes])
    x = torch.from_numpy(np.concatenate(nodes)).float()
    columns = join_superpixels(x[:, :-2], x[:, -2:], boundaries(counts))
    return replace(
        columns,
        nodes={"x": columns.nodes["x"].half().float()},
        edges={"edge_attr": columns.edges["edge_attr"].half().float()},
        graphs={"y": torch.from_numpy(labels).long()},
        split=split_of(len(images), test),
        source=source,
    )


def shuffled_nodes(
    image: UInt8[np.ndarray, "height width colours"], recipe: SlicRecipe, number: int
) -> Float[np.ndarray, "nodes columns"]:
    """Mean colours in [0, 1] and centre of each superpixel, in parts of the image's size.

    The published order is random and cannot be had again; here an image's own number decides.
    """
    regions = find_superpixels(image, recipe).ravel()
    size = np.bincount(regions)
    place = np.indices(image.shape[:2]).reshape(2, -1)  # [2, pixels]
    scale = [*(255.0,) * image.shape[2], *image.shape[:2]]
    values = [*image.reshape(-1, image.shape[2]).T, *place]
    columns = [
        np.bincount(regions, value) / size / whole
        for value, whole in zip(values, scale, strict=True)
    ]
    order = np.random.default_rng((SHUFFLE_SEED, number)).permutation(len(size))
    return np.stack(columns, axis=1)[order]


def _holds_any(folder: Path, *names: str) -> bool:
    return any((folder / name).is_file() for name in names)


def _find(folder: Path, *names: str, files: str) -> Path:
    if not _holds_any(folder, *names):
        raise UserError(f"folder {folder} must hold {files}, got no {' or '.join(names)}")
    return find_file(folder, *names)


def _check_labels(path: Path, labels: UInt8[np.ndarray, " labels"], images: int) -> None:
    if not images:
        raise UserError(f"{path} must have a label for at least one image, got none")
    if len(labels) != images:
        raise UserError(f"{path} must have a label for each of {images} images, got {len(labels)}")
    if int(labels.max()) >= CLASSES:
        raise UserError(f"{path}: labels must be below {CLASSES}, got {int(labels.max())}")

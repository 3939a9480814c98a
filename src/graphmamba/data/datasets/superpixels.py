"""MNIST and CIFAR10 as superpixels: each node has edges to its 8 nearest nodes.

Superpixels come from finished files or from the raw images, by the recipe of Knyazev et al.
(https://arxiv.org/abs/1905.02850) with random order; graphs by that of Dwivedi et al., Benchmarking
Graph Neural Networks (https://arxiv.org/abs/2003.00982). Numbers are rounded as the published files
are, to float16. The published files drop one of the nine nearest nodes, which one depends on how
NumPy partitions them; here the 8 nearest are taken.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from graphmamba.data.datasets.files import find_file, read_arrays, read_cifar, read_idx, reading
from graphmamba.data.datasets.slic import SlicRecipe, find_superpixels
from graphmamba.data.parallel import run_all
from graphmamba.data.store import check_ptr
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

NEIGHBOURS = 8
# what the integers of the files are divided by: colours and places are then in [0, 1]
VALUE_SCALE, CENTRE_SCALE = 1020.0, 1024.0
# the first training images are for validation; test images come last
VALIDATION, TEST = 5_000, 10_000
NUMBERS_AT_ONCE = 1_000_000  # entries of the similarity matrices that are computed together
MNIST_NODES, CIFAR_NODES = "mnist_75sp.npz", "cifar10_150sp.npz"
CIFAR_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
MNIST_HOLDS = (
    f"{MNIST_NODES}[.xz], or {{train,t10k}}-images-idx3-ubyte[.gz] and "
    "{train,t10k}-labels-idx1-ubyte[.gz]"
)
CIFAR_HOLDS = f"{CIFAR_NODES}[.xz], or data_batch_{{1,2,3,4,5}}.bin and test_batch.bin"
MNIST_RECIPE = SlicRecipe(most=75, asked=95, compactness=0.25)
CIFAR_RECIPE = SlicRecipe(most=150, asked=200, compactness=10.0)
SHUFFLE_SEED = 111
BLOCK = 64  # images that one thread takes at a time


def read_superpixels(
    folder: Path, file: str, colours: int, images: int | None = None
) -> GraphColumns:
    """Read superpixel nodes and join them.

    `file` is an `.npz` as it is or packed with xz, with 1 or 3 colours for each node; `images` is
    how many to take, from the first on.
    """
    path = find_file(folder, f"{file}.xz", file)
    arrays = read_arrays(path, ["value", "centre", "ptr", "label"])
    with reading(path, "superpixels whose columns fit together"):
        node_ptr = torch.from_numpy(arrays["ptr"].astype(np.int64, casting="same_kind"))
        value = torch.from_numpy(arrays["value"].T.astype(np.float32)) / VALUE_SCALE
        centre = torch.from_numpy(arrays["centre"].T.astype(np.float32)) / CENTRE_SCALE
        y = torch.from_numpy(arrays["label"].astype(np.int64, casting="same_kind"))
        nodes, total = value.shape[0], len(y)
        check_ptr(f"{path}: ptr", node_ptr, total, nodes)
        if value.shape != (nodes, colours) or centre.shape != (nodes, 2):
            raise ValueError(f"value has the shape {arrays['value'].shape}")
        taken = total if images is None else min(images, total)
        node_ptr, end = node_ptr[: taken + 1], int(node_ptr[taken])
        columns = join_superpixels(value[:end], centre[:end], node_ptr)
    return replace(
        columns,
        graphs={"y": y[:taken]},
        split=split_of(total)[:taken],
        source=f"built from {path.name}" + ("" if taken == total else f", {taken:,} images"),
    )


def join_superpixels(
    value: Float[Tensor, "nodes colours"],
    centre: Float[Tensor, "nodes 2"],
    node_ptr: Int[Tensor, " boundaries"],
) -> GraphColumns:
    """Graphs of superpixels: colours and places of nodes, similarities of edges; no labels yet."""
    targets, weights = join_nearest(centre, node_ptr)
    counts = node_ptr.diff()
    first = torch.repeat_interleave(node_ptr[:-1], counts)
    source = (torch.arange(len(targets)) - first).int()[:, None].expand_as(targets)
    kept = (targets.flatten() >= 0).nonzero().flatten()
    return GraphColumns(
        node_ptr=node_ptr,
        edge_ptr=boundaries(torch.clamp(counts - 1, 0, NEIGHBOURS) * counts),
        edge_index=torch.stack([source.flatten()[kept], targets.flatten()[kept]]).long(),
        nodes={"x": torch.cat([value, centre], dim=1)},
        edges={"edge_attr": weights.flatten()[kept][:, None]},
    )


def split_of(images: int, test: int = TEST) -> Int[Tensor, " graphs"]:
    """Split of each image, in the order of the original files."""
    number = torch.arange(images)
    return torch.where(number >= images - test, 2, (number < VALIDATION).long())


def join_nearest(
    centre: Float[Tensor, "nodes 2"], node_ptr: Int[Tensor, " boundaries"]
) -> tuple[Int[Tensor, "nodes neighbours"], Float[Tensor, "nodes neighbours"]]:
    """Find the most similar nodes of each node, most similar first, with their similarity.

    Images of as many nodes are computed together. Where a graph has too few nodes, the target
    is -1.
    """
    targets = torch.full((len(centre), NEIGHBOURS), -1, dtype=torch.int32)
    weights = torch.zeros(len(centre), NEIGHBOURS)
    counts = node_ptr.diff()
    parts = [
        (size, some)
        for size in counts.unique().tolist()
        if size
        for some in node_ptr[:-1][counts == size].split(max(1, NUMBERS_AT_ONCE // size**2))
    ]

    def join(part: tuple[int, Tensor]) -> None:
        size, starts = part
        rows = starts[:, None] + torch.arange(size)  # [images, size]
        weight, target = similarities(centre[rows]).topk(min(NEIGHBOURS, size - 1), dim=2)
        targets[rows, : target.shape[2]] = target.int()
        weights[rows, : target.shape[2]] = weight

    run_all(join, parts, "Nearest superpixels")
    return targets, weights


def similarities(centre: Float[Tensor, "images size 2"]) -> Float[Tensor, "images size size"]:
    """A_ij = exp(-(distance / sigma_i)^2) made symmetric; sigma: mean distance to the nearest 8."""
    size = centre.shape[1]
    distance = torch.cdist(centre, centre, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distance.topk(min(NEIGHBOURS + 1, size), dim=2, largest=False, sorted=False).values
    sigma = nearest.sum(dim=2, keepdim=True) / NEIGHBOURS + 1e-8
    similar = torch.exp(-((distance / sigma) ** 2))
    similar = 0.5 * (similar + similar.mT)
    # nodes that are far from all others have a similarity of 0; none is its own neighbour
    similar.diagonal(dim1=1, dim2=2).fill_(-1.0)
    return similar


def read_mnist(folder: Path) -> GraphColumns:
    """Read superpixels where the folder has them, and else make them of the raw images."""
    if any((folder / name).is_file() for name in (MNIST_NODES, f"{MNIST_NODES}.xz")):
        return read_superpixels(folder, MNIST_NODES, colours=1)
    images, labels = [], []
    for part in ("train", "t10k"):
        name = f"{part}-images-idx3-ubyte"
        images.append(read_idx(find_file(folder, name, f"{name}.gz"), 3)[..., None])
        name = f"{part}-labels-idx1-ubyte"
        labels.append(read_idx(find_file(folder, name, f"{name}.gz"), 1))
    return superpixels_of(images, labels, MNIST_RECIPE, "built from MNIST's images")


def read_cifar10(folder: Path) -> GraphColumns:
    """Read superpixels where the folder has them, and else make them of the raw images."""
    if any((folder / name).is_file() for name in (CIFAR_NODES, f"{CIFAR_NODES}.xz")):
        return read_superpixels(folder, CIFAR_NODES, colours=3)
    if (folder / "data_batch_1").is_file():
        raise UserError(
            f"folder {folder} must hold CIFAR10's binary version, {CIFAR_FILES[0]} and so on, got "
            "the Python version, which is made of pickles, which are never loaded"
        )
    parts = [read_cifar(find_file(folder, file)) for file in CIFAR_FILES]
    images, labels = zip(*parts, strict=True)
    return superpixels_of(images, labels, CIFAR_RECIPE, "built from CIFAR10's images")


def superpixels_of(
    image_parts: Sequence[UInt8[np.ndarray, "_ height width colours"]],
    label_parts: Sequence[UInt8[np.ndarray, " _"]],
    recipe: SlicRecipe,
    source: str,
) -> GraphColumns:
    """Find the superpixels of all images and join them; the last part is for testing."""
    shapes = {part.shape[1:] for part in image_parts}
    counts = [len(part) for part in image_parts]
    if len(shapes) > 1 or counts != [len(part) for part in label_parts]:
        raise UserError("images must have one size and a label each, got others")
    images, labels = np.concatenate(image_parts), np.concatenate(label_parts)

    def work(start: int) -> list[Float[np.ndarray, "nodes columns"]]:
        numbers = range(start, min(start + BLOCK, len(images)))
        return [shuffled_nodes(images[number], recipe, number) for number in numbers]

    blocks = run_all(work, range(0, len(images), BLOCK), "Superpixels")
    nodes = [each for block in blocks for each in block]
    x = torch.from_numpy(np.concatenate(nodes)).float()
    columns = join_superpixels(
        x[:, :-2], x[:, -2:], boundaries(torch.tensor([len(each) for each in nodes]))
    )
    return replace(
        columns,
        nodes={"x": columns.nodes["x"].half().float()},
        edges={"edge_attr": columns.edges["edge_attr"].half().float()},
        graphs={"y": torch.from_numpy(labels).long()},
        split=split_of(len(images), counts[-1]),
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

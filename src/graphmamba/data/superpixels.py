"""MNIST and CIFAR10 as superpixels: each node points to the 8 that are most similar by place.

Recipe: Dwivedi et al., Benchmarking Graph Neural Networks (https://arxiv.org/abs/2003.00982).
The published files drop one of the nine most similar nodes at an arbitrary position, as the sort
they were made with left it there; here the exact 8 and their own weights are taken.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import run_all
from graphmamba.data.raw_files import (
    check_finite,
    check_integers,
    check_pointers,
    find_file,
    read_arrays,
)
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

NEIGHBOURS = 8
CLASSES = 10
VALUE_SCALE = 1020.0
CENTRE_SCALE = 1024.0
"""What the integers of the files are divided by: colours and places are then in [0, 1]."""
VALIDATION, TEST = 5_000, 10_000
"""The first training images are for validation; test images come last."""
NUMBERS_AT_ONCE = 1_000_000
"""Entries of the similarity matrices that are computed together."""


def read_superpixels(
    folder: Path, file: str, colours: int, images: int | None = None
) -> GraphColumns:
    """Read superpixel nodes and join them.

    Args:
        folder: Holds `file`, an `.npz` as it is or packed with xz.
        file: Its name without `.xz`.
        colours: Values of a node: 1 for grey images, 3 for colour images.
        images: How many images to take, from the first on; all where it is None.
    """
    path = find_file(folder, f"{file}.xz", file)
    arrays = read_arrays(path, ["value", "centre", "ptr", "label"])
    _check(path, arrays, colours)
    total = len(arrays["label"])
    taken = total if images is None else min(images, total)
    node_ptr = torch.from_numpy(arrays["ptr"][: taken + 1].astype(np.int64))
    end = int(node_ptr[-1])
    value = torch.from_numpy(arrays["value"][:, :end].T.astype(np.float32)) / VALUE_SCALE
    centre = torch.from_numpy(arrays["centre"][:, :end].T.astype(np.float32)) / CENTRE_SCALE
    return replace(
        join_superpixels(value, centre, node_ptr),
        graphs={"y": torch.from_numpy(arrays["label"][:taken].astype(np.int64))},
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
    edge_ptr, edge_index, kept = _edges(targets, node_ptr)
    return GraphColumns(
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
        edge_index=edge_index,
        nodes={"x": torch.cat([value, centre], dim=1)},
        edges={"edge_attr": weights.flatten()[kept][:, None]},
    )


def split_of(images: int, test: int = TEST) -> Int[Tensor, " graphs"]:
    """Part of each image, in the order of the original files."""
    number = torch.arange(images)
    is_test = number >= images - test
    return torch.where(is_test, 2, (number < VALIDATION).long())


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


def _edges(
    targets: Int[Tensor, "nodes neighbours"], node_ptr: Int[Tensor, " boundaries"]
) -> tuple[Int[Tensor, " boundaries"], Int[Tensor, "2 edges"], Int[Tensor, " edges"]]:
    """Boundaries, both ends of each edge, and its place among all targets."""
    counts = node_ptr.diff()
    first = torch.repeat_interleave(node_ptr[:-1], counts)
    source = (torch.arange(len(targets)) - first).int()[:, None].expand_as(targets)
    kept = (targets.flatten() >= 0).nonzero().flatten()
    edge_index = torch.stack([source.flatten()[kept], targets.flatten()[kept]]).long()
    out = torch.clamp(counts - 1, 0, NEIGHBOURS) * counts
    return boundaries(out), edge_index, kept


def _check(path: Path, arrays: dict[str, np.ndarray], colours: int) -> None:
    nodes = arrays["value"].shape[-1] if arrays["value"].ndim else 0
    for name, rows in (("value", colours), ("centre", 2)):
        if arrays[name].shape != (rows, nodes):
            raise UserError(
                f"{path}: {name} must have the shape {(rows, nodes)}, got {arrays[name].shape}"
            )
        check_finite(path, name, arrays[name])
    check_pointers(path, "ptr", arrays["ptr"], nodes)
    check_integers(path, "label", arrays["label"], CLASSES)
    if len(arrays["ptr"]) != len(arrays["label"]) + 1:
        raise UserError(
            f"{path}: label must have {len(arrays['ptr']) - 1} entries, got {len(arrays['label'])}"
        )

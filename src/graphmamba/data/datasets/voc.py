"""PascalVOC-SP: regions of photographs, joined where they touch, each with its class.

Regions come from finished files, or from photographs and class masks by the recipe in `slic.py`.
The published set takes images and masks of the Semantic Boundaries Dataset
(https://doi.org/10.1109/ICCV.2011.6126343). Its training list is for training; its validation list
is halved, with each class as often in both halves. The published halves are one random draw: a
`test.txt` beside the lists takes the place of the draw made here.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8

from graphmamba.data.catalog import VOC_CLASSES
from graphmamba.data.datasets.files import (
    MissingFileError,
    find_file,
    read_arrays,
    read_class_mask,
    read_names,
    read_picture,
    reading,
)
from graphmamba.data.datasets.slic import RegionGraph, columns_of_regions, find_regions
from graphmamba.data.parallel import run_all
from graphmamba.data.tables import GraphColumns, boundaries, concatenate
from graphmamba.errors import UserError

# each file, and the split that its images are in
FILES = dict.fromkeys((f"voc_sp_train_{part}.npz" for part in range(3)), 0)
FILES |= {"voc_sp_val.npz": 1, "voc_sp_test.npz": 2}
COLUMNS = ("rgb", "centre", "label", "source", "offset", "sobel", "count", "node_ptr", "edge_ptr")
DEVIATIONS = slice(3, 6)  # columns that hold standard deviations; their integers are twice as fine
HALVES_SEED = 41
VOID = 255  # marks pixels of no class; each counts as the nearest pixel that has one


def read_voc(folder: Path, files: dict[str, int] = FILES) -> GraphColumns:
    """Read the regions of all images; `files` may name fewer splits."""
    paths = [find_file(folder, f"{file}.xz", file) for file in files]
    graphs = run_all(_read_part, paths, "Reading regions")
    counts = torch.tensor([len(each.node_ptr) - 1 for each in graphs])
    split = torch.repeat_interleave(torch.tensor([*files.values()]), counts)
    return replace(concatenate(graphs), split=split, source=f"built from {', '.join(files)}")


def _read_part(path: Path) -> GraphColumns:
    arrays = read_arrays(path, COLUMNS)
    with reading(path, "regions whose columns fit together"):
        return _columns_of(arrays)


def _columns_of(arrays: dict[str, np.ndarray]) -> GraphColumns:
    node_ptr = torch.from_numpy(arrays["node_ptr"].astype(np.int64, casting="same_kind"))
    edge_ptr = torch.from_numpy(arrays["edge_ptr"].astype(np.int64, casting="same_kind"))
    source = torch.from_numpy(arrays["source"].astype(np.int32))
    target = source + torch.from_numpy(arrays["offset"].astype(np.int32))
    edge_index = torch.stack([source, target])
    count = torch.from_numpy(arrays["count"].astype(np.float32))
    sobel = (torch.from_numpy(arrays["sobel"].astype(np.float32)) / 255) ** 2
    attributes = torch.stack([sobel, count], dim=1)
    # a boundary joins both ways; the self-loop of an image of one region is already both
    times = torch.where(source == target, 1, 2)
    row = torch.repeat_interleave(torch.arange(len(times)), times)
    is_back = torch.cat([torch.zeros(1, dtype=torch.bool), row[1:] == row[:-1]])[: len(row)]
    edge_index = torch.where(is_back, edge_index.flip(0)[:, row], edge_index[:, row])
    ends = boundaries(times)
    # mean, deviation, maximum and minimum of each colour, then the centre in pixels
    rgb = torch.from_numpy(arrays["rgb"].T.astype(np.float32)) / 255
    rgb[:, DEVIATIONS] /= 2
    centre = torch.from_numpy(arrays["centre"].T.astype(np.float32)) / 4
    return GraphColumns(
        node_ptr=node_ptr,
        edge_ptr=ends[edge_ptr],
        edge_index=edge_index.long(),
        nodes={"x": torch.cat([rgb, centre], dim=1), "y": torch.from_numpy(arrays["label"]).long()},
        edges={"edge_attr": attributes[row]},
    )


# Folders of images and masks, suffix of the masks, and folder of the lists, as a release has them:
# the Semantic Boundaries Dataset; Pascal VOC with the masks of that one added; Pascal VOC.
LAYOUTS = (
    ("img", "cls", ".mat", "."),
    ("JPEGImages", "SegmentationClassAug", ".png", "ImageSets/Segmentation"),
    ("JPEGImages", "SegmentationClass", ".png", "ImageSets/Segmentation"),
)
HOLDS = (
    "voc_sp_{train_0,train_1,train_2,val,test}.npz[.xz], or img/, cls/, train.txt and val.txt, "
    "or JPEGImages/, SegmentationClass[Aug]/ and ImageSets/"
)


def read_voc_folder(folder: Path) -> GraphColumns:
    """Read finished regions where the folder has them, and else make them of its images."""
    if any((folder / f"{file}{packed}").is_file() for file in FILES for packed in ("", ".xz")):
        return read_voc(folder)
    for images, masks, suffix, lists in LAYOUTS:
        if (folder / images).is_dir() and (folder / masks).is_dir():
            return _read_images(folder / images, folder / masks, suffix, folder / lists)
    raise MissingFileError(f"folder {folder} must hold regions or images, got neither")


def _read_images(images: Path, masks: Path, suffix: str, lists: Path) -> GraphColumns:
    """Make the regions of every image that the lists name."""
    parts = [find_file(lists, "train.txt"), find_file(lists, "val.txt")]
    if (lists / "test.txt").is_file():
        parts.append(lists / "test.txt")
    listed = [read_names(path) for path in parts]

    def work(name: str) -> RegionGraph:
        mask = masks / f"{name}{suffix}"
        pixels, classes = read_picture(images / f"{name}.jpg"), read_mask(mask)
        if classes.shape != pixels.shape[:2]:
            raise UserError(f"{mask} must have the shape {pixels.shape[:2]}, got {classes.shape}")
        return find_regions(pixels, classes)

    graphs = run_all(work, [name for names in listed for name in names], "Regions")
    split = np.repeat(np.arange(len(listed)), [len(names) for names in listed])
    if len(listed) == 2:  # noqa: PLR2004
        split[split == 1] = halve([commonest(graph.y) for graph in graphs[len(listed[0]) :]])
    return replace(
        columns_of_regions(graphs),
        split=torch.from_numpy(split),
        source=f"built from {images.name} and {masks.name}",
    )


def read_mask(path: Path) -> UInt8[np.ndarray, "height width"]:
    """Class of each pixel, from a PNG or from MATLAB's format; void is filled from its borders."""
    if path.suffix == ".mat":
        from scipy.io import loadmat

        kind = "a MATLAB 5 file with the bytes GTcls.Segmentation"
        with reading(find_file(path.parent, path.name), kind):
            found = loadmat(path)["GTcls"]["Segmentation"][0, 0]
            classes = np.asarray(found).astype(np.uint8, casting="safe")
    else:
        classes = read_class_mask(path)
    is_void = classes == VOID
    if is_void.any():
        from scipy.ndimage import distance_transform_edt

        row, column = distance_transform_edt(is_void, return_distances=False, return_indices=True)
        classes = classes[row, column]
    return classes


def commonest(classes: UInt8[np.ndarray, " nodes"]) -> int:
    """Class that most regions have, background aside; 0 where there is nothing else."""
    counts = np.bincount(classes, minlength=len(VOC_CLASSES))
    counts[0] = 0
    return int(counts.argmax())


def halve(kinds: Sequence[int], seed: int = HALVES_SEED) -> Int[np.ndarray, " images"]:
    """Split of each image, validation 1 or test 2: each kind in halves, the odd ones in turn."""
    drawn = np.random.default_rng(seed).permutation(len(kinds))
    order = drawn[np.argsort(np.asarray(kinds)[drawn], kind="stable")]
    part = np.empty(len(kinds), np.int64)
    part[order] = 2 - np.arange(len(kinds)) % 2
    return part

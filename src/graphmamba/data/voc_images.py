"""PascalVOC-SP from photographs and class masks (see `region_graphs.py`).

The published set takes images and masks of the Semantic Boundaries Dataset
(https://doi.org/10.1109/ICCV.2011.6126343). Its training list is for training; its validation list
is halved, with each class as often in both halves. The published halves are one random draw: a
`test.txt` beside the lists takes the place of the draw made here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8

from graphmamba.data.image_files import read_class_mask, read_picture
from graphmamba.data.parallel import run_all
from graphmamba.data.raw_files import find_file
from graphmamba.data.region_graphs import RegionGraph, columns_of_regions, find_regions
from graphmamba.data.tables import GraphColumns
from graphmamba.data.voc import CLASSES, FILES, read_voc
from graphmamba.errors import UserError

HALVES_SEED = 41
VOID = 255
"""Marks pixels of no class; each counts as the nearest pixel that has one."""


@dataclass(frozen=True)
class Layout:
    """Where a release keeps its files."""

    images: str
    masks: str
    suffix: str
    lists: str


LAYOUTS = (
    Layout("img", "cls", ".mat", "."),
    Layout("JPEGImages", "SegmentationClassAug", ".png", "ImageSets/Segmentation"),
    Layout("JPEGImages", "SegmentationClass", ".png", "ImageSets/Segmentation"),
)
"""The Semantic Boundaries Dataset; Pascal VOC with the masks of that one added; Pascal VOC."""
HOLDS = (
    "voc_sp_{train_0,train_1,train_2,val,test}.npz[.xz], or img/, cls/, train.txt and val.txt, "
    "or JPEGImages/, SegmentationClass[Aug]/ and ImageSets/"
)


def read_voc_folder(folder: Path) -> GraphColumns:
    """Read finished regions where the folder has them, and else make them of its images."""
    if any((folder / f"{file}{packed}").is_file() for file in FILES for packed in ("", ".xz")):
        return read_voc(folder)
    for layout in LAYOUTS:
        if (folder / layout.images).is_dir() and (folder / layout.masks).is_dir():
            return read_voc_images(folder, layout)
    raise UserError(f"folder {folder} must hold {HOLDS}, got none of them")


def read_voc_images(folder: Path, layout: Layout) -> GraphColumns:
    """Make the regions of every image that the lists name."""
    lists = folder / layout.lists
    parts = [find_file(lists, "train.txt"), find_file(lists, "val.txt")]
    if (lists / "test.txt").is_file():
        parts.append(lists / "test.txt")
    listed = [read_list(path) for path in parts]
    names = [name for each in listed for name in each]
    graphs: dict[int, RegionGraph] = {}

    def work(number: int) -> None:
        image = folder / layout.images / f"{names[number]}.jpg"
        mask = folder / layout.masks / f"{names[number]}{layout.suffix}"
        pixels, classes = read_picture(image), read_mask(mask)
        if classes.shape != pixels.shape[:2]:
            raise UserError(f"{mask} must have the shape {pixels.shape[:2]}, got {classes.shape}")
        graphs[number] = find_regions(pixels, classes)

    run_all(work, range(len(names)), "Regions")
    in_order = [graphs[number] for number in range(len(names))]
    split = np.repeat(np.arange(len(listed)), [len(each) for each in listed])
    if len(listed) == 2:  # noqa: PLR2004
        split[split == 1] = halve([commonest(graph.y) for graph in in_order[len(listed[0]) :]])
    return replace(
        columns_of_regions(in_order),
        split=torch.from_numpy(split),
        source=f"built from {layout.images} and {layout.masks}",
    )


def read_list(path: Path) -> list[str]:
    """Names of images, one a line."""
    names = path.read_text(encoding="utf-8").split()
    if not names:
        raise UserError(f"{path} must name at least one image, got none")
    return names


def read_mask(path: Path) -> UInt8[np.ndarray, "height width"]:
    """Class of each pixel, from a PNG or from MATLAB's format; void is filled from its borders."""
    classes = _read_matlab(path) if path.suffix == ".mat" else read_class_mask(path)
    is_void = classes == VOID
    if is_void.all():
        raise UserError(f"{path} must have a class for at least one pixel, got void alone")
    if is_void.any():
        from scipy.ndimage import distance_transform_edt

        row, column = distance_transform_edt(is_void, return_distances=False, return_indices=True)
        classes = classes[row, column]
    if int(classes.max()) >= CLASSES:
        raise UserError(f"{path}: classes must be below {CLASSES}, got {int(classes.max())}")
    return classes


def _read_matlab(path: Path) -> UInt8[np.ndarray, "height width"]:
    from scipy.io import loadmat

    if not path.is_file():
        raise UserError(f"folder {path.parent} must hold {path.name}, got no such file")
    try:
        classes = loadmat(path)["GTcls"]["Segmentation"][0, 0]
        return np.asarray(classes).astype(np.uint8, casting="safe")
    # scipy's reader raises whatever it comes across in a damaged file
    except Exception as mistake:
        raise UserError(
            f"{path} must be a MATLAB 5 file with the bytes GTcls.Segmentation: {mistake}"
        ) from mistake


def commonest(classes: UInt8[np.ndarray, " nodes"]) -> int:
    """Class that most regions have, background aside; 0 where there is nothing else."""
    counts = np.bincount(classes, minlength=CLASSES)
    counts[0] = 0
    return int(counts.argmax())


def halve(kinds: Sequence[int], seed: int = HALVES_SEED) -> Int[np.ndarray, " images"]:
    """Part of each image, validation 1 or test 2: each kind in halves, the odd ones in turn."""
    drawn = np.random.default_rng(seed).permutation(len(kinds))
    order = drawn[np.argsort(np.asarray(kinds)[drawn], kind="stable")]
    part = np.empty(len(kinds), np.int64)
    part[order] = 2 - np.arange(len(kinds)) % 2
    return part

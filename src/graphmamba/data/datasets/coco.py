"""COCO-SP from the photographs and instances of COCO 2017 (the recipe stands in `slic.py`).

The original validation images are for testing, 5,000 training images are drawn for validation: by
the fractions, the generator and the seed of LRGB's public script, as far as we know those of the
published set, with whose files the draw has not been compared.

Formats of annotations: https://cocodataset.org/#format-data. Polygons are lists x, y, x, y, ... in
which pixel (0, 0) reaches from 0 to 1; run lengths go down the columns and begin with the
background's.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8

from graphmamba.data.datasets.files import find_file, read_picture, reading
from graphmamba.data.datasets.slic import (
    RegionGraph,
    columns_of_regions,
    find_regions,
    import_skimage,
)
from graphmamba.data.parallel import run_all
from graphmamba.data.tables import GraphColumns

TRAINING, TESTING = "train2017", "val2017"
ANNOTATIONS = "annotations"
FOLDERS = f"{TRAINING}/, {TESTING}/ and {ANNOTATIONS}/instances_{{{TRAINING},{TESTING}}}.json"
FRACTIONS = (0.9577298, 0.0422702)
"""Of the training images, those for training and those for validation: 113,286 and 5,000 of the
118,287 that COCO has; the last one is left out, as published."""
SEED = 0


@dataclass(frozen=True)
class Photographs:
    """What one file of annotations says about the images of one folder."""

    path: Path
    folder: Path
    images: list[dict[str, Any]]
    objects: Mapping[int, list[dict[str, Any]]]  # objects of an image by its id
    classes: Mapping[int, int]
    """Class of a category by its id: 1 and up in the order of the ids, which have gaps."""


def read_coco(folder: Path, fractions: tuple[float, float] = FRACTIONS) -> GraphColumns:
    """Make the regions of all images of COCO 2017; `fractions` divide the training images."""
    training, testing = (read_instances(folder, part) for part in (TRAINING, TESTING))
    drawn = draw_parts(len(training.images), fractions)
    parts = np.concatenate([drawn, np.full(len(testing.images), 2)])
    images = [(part, image) for part in (training, testing) for image in part.images]

    def work(item: tuple[Photographs, dict[str, Any]]) -> RegionGraph:
        of, image = item
        pixels = read_picture(of.folder / image["file_name"])
        objects = of.objects.get(image["id"], [])
        return find_regions(pixels, draw_classes(of.path, objects, of.classes, *pixels.shape[:2]))

    items = [image for image, part in zip(images, parts, strict=True) if part >= 0]
    graphs = run_all(work, items, "Regions")
    return replace(
        columns_of_regions(graphs),
        split=torch.from_numpy(parts[parts >= 0]),
        source=f"built from {TRAINING} and {TESTING}",
    )


def draw_parts(
    images: int, fractions: tuple[float, float] = FRACTIONS
) -> Int[np.ndarray, " images"]:
    """Split of each training image as they are listed: 0 training, 1 validation, -1 left out."""
    train, validation = (int(images * fraction) for fraction in fractions)
    # newer generators of NumPy's would draw others
    order = np.random.RandomState(SEED).permutation(images)
    parts = np.full(images, -1)
    parts[order[:train]] = 0
    parts[order[train : train + validation]] = 1
    return parts


def read_instances(folder: Path, part: str) -> Photographs:
    """Read one file of annotations."""
    path = find_file(folder / ANNOTATIONS, f"instances_{part}.json")
    with reading(path, "a whole file of COCO's instances"):
        content = json.loads(path.read_text(encoding="utf-8"))
        objects: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for each in content["annotations"]:
            kept = {name: each[name] for name in ("id", "category_id", "segmentation")}
            objects[each["image_id"]].append(kept)
        images = [
            {name: image[name] for name in ("id", "file_name")} for image in content["images"]
        ]
        ids = sorted(category["id"] for category in content["categories"])
    classes = {identity: number for number, identity in enumerate(ids, start=1)}
    return Photographs(path, folder / part, images, objects, classes)


def draw_classes(
    path: Path,
    objects: Sequence[Mapping[str, Any]],
    classes: Mapping[int, int],
    height: int,
    width: int,
) -> UInt8[np.ndarray, "height width"]:
    """Class of each pixel; where objects overlap, the class with the larger number is seen."""
    drawn = np.zeros((height, width), np.uint8)
    for each in objects:
        with reading(path, f"COCO's instances, got a wrong annotation {each['id']}"):
            is_inside = draw_object(each["segmentation"], height, width)
            drawn[is_inside] = np.maximum(drawn[is_inside], classes[each["category_id"]])
    return drawn


def draw_object(outline: Any, height: int, width: int) -> Bool[np.ndarray, "height width"]:
    """Pixels of one object, from its polygons or run lengths."""
    if isinstance(outline, list):
        is_inside = np.zeros((height, width), dtype=bool)
        for polygon in outline:
            points = np.asarray(polygon, np.float64).reshape(-1, 2)
            # a pixel is inside where its middle is, half a pixel from the corner that names it
            is_inside[import_skimage("draw").polygon(*points.T[::-1] - 0.5, is_inside.shape)] = True
        return is_inside
    if list(outline["size"]) != [height, width]:
        raise ValueError(f"size must be {[height, width]}, got {outline['size']}")
    counts = outline["counts"]
    runs = np.asarray(unpack_runs(counts) if isinstance(counts, str) else counts, np.int64)
    # odd ones are the object's
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def unpack_runs(packed: str) -> list[int]:
    """Run lengths from their packed text; from the fourth on each is relative to the last but one.

    Each number is written in groups of five bits, the lowest first.
    """
    runs: list[int] = []
    value = shift = 0
    for letter in packed.encode("ascii"):
        # five bits a letter, counted from "0", and a sixth if more letters follow
        code = letter - 48
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        # the highest of the bits is the sign
        if code & 16:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))  # noqa: PLR2004
        value = shift = 0
    return runs

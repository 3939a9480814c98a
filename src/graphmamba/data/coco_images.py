"""COCO-SP from the photographs and instances of COCO 2017 (see `region_graphs.py`).

The original validation images are for testing, 5,000 training images are drawn for validation. The
published draw cannot be had again from its seed alone, so that the images drawn here are others.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmamba.data.coco_masks import draw_classes
from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.image_files import read_picture
from graphmamba.data.raw_files import find_file
from graphmamba.data.region_graphs import RegionGraph, columns_of_regions, find_regions
from graphmamba.data.workers import run_all
from graphmamba.errors import UserError

TRAINING, TESTING = "train2017", "val2017"
ANNOTATIONS = "annotations"
FOLDERS = f"{TRAINING}/, {TESTING}/ and {ANNOTATIONS}/instances_{{{TRAINING},{TESTING}}}.json"
CATEGORIES = 80
VALIDATION, VALIDATION_SEED = 5_000, 0


@dataclass(frozen=True)
class Photographs:
    """What one file of annotations says about the images of one folder."""

    path: Path
    folder: Path
    images: list[dict[str, Any]]
    objects: Mapping[int, list[dict[str, Any]]]
    """Objects of an image by its id."""
    classes: Mapping[int, int]
    """Class of a category by its id: 1 and up in the order of the ids, which have gaps."""


def read_coco(folder: Path, validation: int = VALIDATION) -> GraphColumns:
    """Make the regions of all images.

    Args:
        folder: COCO 2017 as it is unpacked: `train2017/`, `val2017/` and `annotations/`.
        validation: Training images that are drawn for validation.
    """
    if not (folder / ANNOTATIONS).is_dir():
        raise UserError(f"folder {folder} must hold {FOLDERS}, got no {ANNOTATIONS}/")
    training, testing = (read_instances(folder, part) for part in (TRAINING, TESTING))
    if training.classes != testing.classes:
        raise UserError(f"{testing.path}: categories must be those of {training.path}, got others")
    count = len(training.images)
    if count <= validation:
        raise UserError(f"{training.path} must list more than {validation} images, got {count}")
    items = [(part, number) for part in (training, testing) for number in range(len(part.images))]
    graphs: dict[int, RegionGraph] = {}

    def work(place: int) -> None:
        part, number = items[place]
        graphs[place] = regions_of(part, number)

    run_all(work, range(len(items)), "Regions")
    split = np.repeat([0, 2], [count, len(testing.images)])
    split[np.random.default_rng(VALIDATION_SEED).permutation(count)[:validation]] = 1
    return replace(
        columns_of_regions([graphs[place] for place in range(len(items))]),
        split=torch.from_numpy(split),
        source=f"built from {TRAINING} and {TESTING}",
    )


def read_instances(folder: Path, part: str) -> Photographs:
    """Read one file of annotations."""
    path = find_file(folder / ANNOTATIONS, f"instances_{part}.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        objects: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for each in content["annotations"]:
            kept = {name: each[name] for name in ("id", "category_id", "segmentation")}
            objects[each["image_id"]].append(kept)
        images = [
            {name: image[name] for name in ("id", "file_name")} for image in content["images"]
        ]
        ids = sorted(category["id"] for category in content["categories"])
    except KeyError as missing:
        raise UserError(f"{path}: every entry must have {missing}, got one without it") from missing
    except (ValueError, TypeError) as mistake:
        raise UserError(f"{path} must be a whole file of COCO's instances: {mistake}") from mistake
    if not images:
        raise UserError(f"{path} must list at least one image, got none")
    if len(set(ids)) != len(ids) or len(ids) > CATEGORIES:
        raise UserError(f"{path} must have at most {CATEGORIES} categories, got ids {ids}")
    classes = {identity: number for number, identity in enumerate(ids, start=1)}
    return Photographs(path, folder / part, images, objects, classes)


def regions_of(photographs: Photographs, number: int) -> RegionGraph:
    """Regions of one image, with the classes that its objects give them."""
    image = photographs.images[number]
    pixels = read_picture(photographs.folder / image["file_name"])
    objects = photographs.objects.get(image["id"], [])
    try:
        classes = draw_classes(objects, photographs.classes, *pixels.shape[:2])
    except UserError as mistake:
        raise UserError(f"{photographs.path}: {mistake}") from mistake
    return find_regions(pixels, classes)

"""COCO-SP from photographs and annotations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.coco import (
    draw_classes,
    draw_object,
    draw_parts,
    read_coco,
    unpack_runs,
)
from graphmamba.errors import UserError
from tests.helpers.image_files import write_coco

pytest.importorskip("skimage")
FILE = Path("instances.json")
FRACTIONS = (0.7, 0.34)
"""Of three images two and one, of six four and two."""


def test_as_many_images_are_drawn_for_each_part_as_published() -> None:
    benchmark, parts = CATALOG["coco-sp"], draw_parts(118_287)
    assert np.bincount(parts + 1).tolist() == [1, benchmark.train, benchmark.validation]
    assert parts[[31_048, 99_801, 68_268]].tolist() == [0, 1, -1]


def test_regions_have_the_classes_of_the_objects_there(tmp_path: Path) -> None:
    write_coco(tmp_path)
    columns = read_coco(tmp_path, FRACTIONS)
    assert sorted(columns.split[:3].tolist()) == [0, 0, 1]
    assert columns.split[3] == 2
    # category 90 is the second of the file's two; its object is the upper left quarter
    row, column = columns.nodes["x"][:, 12], columns.nodes["x"][:, 13]
    is_inside = (row < 11.5) & (column < 15.5)
    assert torch.equal(columns.nodes["y"], 2 * is_inside.long())
    assert is_inside.any()
    assert columns.nodes["x"].shape[1] == 14
    assert columns.edges["edge_attr"].shape == (columns.edge_index.shape[1], 2)
    assert columns.source == "built from train2017 and val2017"


@pytest.mark.parametrize(
    "change", [{"categories": [{"name": "cat"}]}, {"annotations": [{"id": 3}]}, {"annotations": 3}]
)
def test_wrong_annotations_are_named(tmp_path: Path, change: dict[str, object]) -> None:
    write_coco(tmp_path)
    path = tmp_path / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"instances_val2017\.json must be a whole file of COCO's"):
        read_coco(tmp_path, FRACTIONS)
    path.unlink()
    with pytest.raises(UserError, match=r"annotations must hold instances_val2017\.json"):
        read_coco(tmp_path, FRACTIONS)


def pack_runs(runs: list[int]) -> str:
    """The packed text by its definition: differences from the fourth number on, five bits each."""
    text = ""
    for place, run in enumerate(runs):
        value = run - runs[place - 2] if place > 2 else run
        while True:
            bits, value = value & 31, value >> 5
            is_last = value == (-1 if bits & 16 else 0)
            text += chr(48 + bits + (0 if is_last else 32))
            if is_last:
                break
    return text


def draw(segmentation: Any, height: int = 3, width: int = 4) -> list[list[int]]:
    return draw_object(segmentation, height, width).astype(int).tolist()


@pytest.mark.parametrize(
    ("polygons", "expected"),
    [
        ([[1, 0, 3, 0, 3, 2, 1, 2]], [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]),
        # a pixel is inside where its middle is
        ([[0.6, 0.4, 2.4, 0.4, 2.4, 1.6, 0.6, 1.6]], [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]),
        ([[0.4, 0.4, 2.6, 0.4, 2.6, 1.6, 0.4, 1.6]], [[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]),
        # several polygons that leave the image
        (
            [[0, 0, 1, 0, 1, 9, 0, 9], [3, 2, 40, 2, 40, 3, 3, 3]],
            [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 1]],
        ),
    ],
)
def test_polygons_cover_the_pixels_whose_middles_are_inside(
    polygons: list[list[float]], expected: list[list[int]]
) -> None:
    assert draw(polygons) == expected


def test_runs_go_down_the_columns_from_the_background_on() -> None:
    runs = {"size": [3, 4], "counts": [1, 3, 2, 1, 5]}
    expected = [[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert draw(runs) == expected
    assert draw(runs | {"counts": pack_runs([1, 3, 2, 1, 5])}) == expected


def test_packed_runs_are_unpacked() -> None:
    # known text: 6 is one letter, 40 = 8 + 1 * 32 is two
    assert unpack_runs("6") == [6]
    assert unpack_runs("X1") == [40]
    random = np.random.default_rng(0)
    for high in (3, 40, 2_000, 300_000):
        runs = random.integers(0, high, 50).tolist()
        assert unpack_runs(pack_runs(runs)) == runs


def test_the_larger_category_is_seen_where_objects_overlap() -> None:
    left = [[0, 0, 3, 0, 3, 2, 0, 2]]
    right = [[2, 0, 4, 0, 4, 2, 2, 2]]
    for first, second in ((90, 3), (3, 90)):
        objects = [
            {"id": 1, "category_id": first, "segmentation": left},
            {"id": 2, "category_id": second, "segmentation": right},
        ]
        classes = draw_classes(FILE, objects, {3: 1, 90: 2}, 2, 4)
        expected = [2, 2, 2, 1] if first == 90 else [1, 1, 2, 2]
        assert classes.tolist() == [expected, expected]
    assert draw_classes(FILE, [], {3: 1}, 2, 2).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("segmentation", "category"),
    [
        ({"size": [3, 4], "counts": [5, 5]}, 3),
        ({"size": [4, 4], "counts": [16]}, 3),
        ({"counts": [12]}, 3),
        ([[0, 0, 1]], 3),
        (None, 3),
        ([], 12),
    ],
    ids=["sum", "size", "no size", "odd", "none", "category"],
)
def test_a_wrong_annotation_is_named(segmentation: Any, category: int) -> None:
    objects = [{"id": 5, "category_id": category, "segmentation": segmentation}]
    with pytest.raises(UserError, match=r"instances\.json must be .* a wrong annotation 5: "):
        draw_classes(FILE, objects, {3: 1}, 3, 4)

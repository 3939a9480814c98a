"""COCO-SP from photographs and annotations."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from graphmamba.data.catalog import CATALOG
from graphmamba.data.coco_images import draw_parts, read_coco
from graphmamba.data.sources import build_benchmark
from graphmamba.errors import UserError
from tests.helpers.image_files import write_coco

pytest.importorskip("skimage")
FRACTIONS = (0.7, 0.34)
"""Of three images two and one, of six four and two."""


def test_as_many_images_are_drawn_for_each_part_as_published() -> None:
    benchmark, parts = CATALOG["coco-sp"], draw_parts(118_287)
    assert np.bincount(parts + 1).tolist() == [1, benchmark.train, benchmark.validation]
    assert parts[[31_048, 99_801, 68_268]].tolist() == [0, 1, -1]


def test_regions_have_the_classes_of_the_objects_there(tmp_path: Path) -> None:
    write_coco(tmp_path)
    columns = read_coco(tmp_path, FRACTIONS)
    assert columns.split is not None
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


def test_images_without_objects_are_background(tmp_path: Path) -> None:
    write_coco(tmp_path, image_id=12_345)
    assert not read_coco(tmp_path, FRACTIONS).nodes["y"].any()


def test_the_draw_is_the_same_each_time(tmp_path: Path) -> None:
    write_coco(tmp_path, train=6)
    one, again = (read_coco(tmp_path, FRACTIONS) for _ in range(2))
    assert one.split is not None
    assert again.split is not None
    assert torch.equal(one.split, again.split)
    assert one.split.bincount().tolist() == [4, 2, 1]


def test_images_that_the_fractions_leave_are_left_out(tmp_path: Path) -> None:
    write_coco(tmp_path, train=6)
    columns = read_coco(tmp_path, (0.5, 0.34))
    assert columns.split is not None
    assert columns.split.bincount().tolist() == [3, 2, 1]
    assert len(columns.node_ptr) == 7


def test_a_small_set_cannot_spare_its_validation_images(tmp_path: Path) -> None:
    write_coco(tmp_path)
    with pytest.raises(UserError, match=r"train2017\.json must list at least 24 images, .* got 3"):
        build_benchmark("coco-sp", tmp_path, tmp_path / "sets")
    assert not list((tmp_path / "sets").rglob("*.safetensors"))


def test_wrong_objects_are_named_with_their_file(tmp_path: Path) -> None:
    write_coco(tmp_path, segmentation={"size": [24, 32], "counts": [5]})
    with pytest.raises(UserError, match=r"instances_train2017\.json: annotation 10\d: .* got 5"):
        read_coco(tmp_path, FRACTIONS)


def test_missing_and_damaged_images_are_named(tmp_path: Path) -> None:
    write_coco(tmp_path)
    path = tmp_path / "val2017" / "val2017_0.jpg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match=r"val2017_0\.jpg must be a whole image"):
        read_coco(tmp_path, FRACTIONS)
    path.unlink()
    with pytest.raises(UserError, match=r"val2017 must hold val2017_0\.jpg, got no such file"):
        read_coco(tmp_path, FRACTIONS)


def test_objects_follow_the_image_as_it_is(tmp_path: Path) -> None:
    """What counts is the size of the image itself, so that runs of another size are refused."""
    write_coco(tmp_path, segmentation={"size": [24, 32], "counts": [24 * 32]})
    Image.new("RGB", (30, 24)).save(tmp_path / "val2017" / "val2017_0.jpg")
    with pytest.raises(UserError, match=r"size must be \[24, 30\], got \[24, 32\]"):
        read_coco(tmp_path, FRACTIONS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"categories": [{"id": 1}]}, "categories must be those of"),
        ({"categories": [{"id": 1}, {"id": 1}]}, r"at most 80 categories, got ids \[1, 1\]"),
        ({"categories": [{"name": "cat"}]}, "every entry must have 'id', got one without it"),
        ({"images": []}, "must list at least one image, got none"),
        ({"annotations": [{"id": 3}]}, "every entry must have 'category_id'"),
        ({"annotations": 3}, "must be a whole file of COCO's instances"),
    ],
)
def test_wrong_annotations_are_named(tmp_path: Path, change: dict[str, object], told: str) -> None:
    write_coco(tmp_path)
    path = tmp_path / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=rf"instances_val2017\.json.* {told}"):
        read_coco(tmp_path, FRACTIONS)


def test_truncated_and_missing_annotations_are_named(tmp_path: Path) -> None:
    write_coco(tmp_path)
    path = tmp_path / "annotations" / "instances_val2017.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match=r"instances_val2017\.json must be a whole file of COCO's"):
        read_coco(tmp_path, FRACTIONS)
    path.unlink()
    with pytest.raises(UserError, match=r"annotations must hold instances_val2017\.json"):
        read_coco(tmp_path, FRACTIONS)

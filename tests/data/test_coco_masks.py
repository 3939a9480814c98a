"""Objects of COCO's annotations as pixels."""

from typing import Any

import numpy as np
import pytest

from graphmamba.data.coco_masks import draw_classes, draw_object, unpack_runs
from graphmamba.errors import UserError

pytest.importorskip("skimage")


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
    drawn = draw_object({"id": 1, "segmentation": segmentation}, height, width)
    return drawn.astype(int).tolist()


def test_a_box_covers_its_pixels_and_no_other() -> None:
    assert draw([[1, 0, 3, 0, 3, 2, 1, 2]]) == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_a_pixel_is_inside_where_its_middle_is() -> None:
    box = [[0.6, 0.4, 2.4, 0.4, 2.4, 1.6, 0.6, 1.6]]
    assert draw(box) == [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    wider = [[0.4, 0.4, 2.6, 0.4, 2.6, 1.6, 0.4, 1.6]]
    assert draw(wider) == [[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_an_object_may_have_several_polygons_that_leave_the_image() -> None:
    parts = [[0, 0, 1, 0, 1, 9, 0, 9], [3, 2, 40, 2, 40, 3, 3, 3]]
    assert draw(parts) == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 1]]


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
        classes = draw_classes(objects, {3: 1, 90: 2}, 2, 4)
        expected = [2, 2, 2, 1] if first == 90 else [1, 1, 2, 2]
        assert classes.tolist() == [expected, expected]
    assert draw_classes([], {3: 1}, 2, 2).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("segmentation", "told"),
    [
        ({"size": [3, 4], "counts": [5, 5]}, "runs must add up to 12 pixels, got 10"),
        ({"size": [3, 4], "counts": [15, -3]}, "runs must add up to 12 pixels"),
        ({"size": [4, 4], "counts": [16]}, r"size must be \[3, 4\], got \[4, 4\]"),
        ({"size": [3, 4], "counts": "X"}, "must end with a number that is whole"),
        ({"size": [3, 4], "counts": "6~"}, "must have letters from '0' to 'o', got '~'"),
        ({"counts": [12]}, "'size'"),
        ([[0, 0, 1]], r"a polygon must be pairs of finite numbers, got \[0, 0, 1\]"),
        ([[0, 0, 1, 1, float("nan"), 2]], "a polygon must be pairs of finite numbers"),
        ([0, 0, 1, 1, 2, 0], "a polygon must be pairs of finite numbers, got 0"),
        (None, "not subscriptable"),
    ],
)
def test_wrong_outlines_are_named(segmentation: Any, told: str) -> None:
    with pytest.raises(UserError, match=f"annotation 1: segmentation must be .*{told}"):
        draw(segmentation)


def test_an_unknown_category_is_named() -> None:
    objects = [{"id": 5, "category_id": 12, "segmentation": []}]
    with pytest.raises(UserError, match=r"annotation 5: category_id must be one of .* got 12"):
        draw_classes(objects, {3: 1}, 2, 2)

"""PascalVOC-SP from finished regions and from images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from graphmamba.data.datasets.sources import build_benchmark
from graphmamba.data.datasets.voc import halve, read_mask, read_voc, read_voc_folder
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from tests.helpers.image_files import write_sbd, write_voc
from tests.helpers.raw_files import cut, write_regions

FILES = {"a.npz": 0, "b.npz": 2}
pytest.importorskip("skimage")
Writer = Callable[[Path, dict[str, list[str]], dict[str, np.ndarray]], None]
CLASSES = np.array([[0, 3], [20, 1]], np.uint8)
MASK = CLASSES.repeat(12, 0).repeat(16, 1)
NAMES = {"train": ["2008_000001", "2008_000002"], "val": ["2009_000001", "2009_000002"]}
MASKS = {name: MASK for names in NAMES.values() for name in names}
layouts = pytest.mark.parametrize("write", [write_voc, write_sbd], ids=["voc", "sbd"])


def test_boundaries_go_both_ways_and_loops_once(tmp_path: Path) -> None:
    for name in FILES:
        write_regions(tmp_path / f"{name}.xz")
    columns = read_voc(tmp_path, FILES)
    assert columns.node_ptr.tolist() == [0, 3, 4, 7, 8]
    assert columns.edge_ptr.tolist() == [0, 6, 7, 13, 14]
    assert columns.edge_index[:, :7].tolist() == [[0, 1, 0, 2, 1, 2, 0], [1, 0, 2, 0, 2, 1, 0]]
    sobel, count = columns.edges["edge_attr"][:7].T
    torch.testing.assert_close(sobel, torch.tensor([1, 1, 0.04, 0.04, 0, 0, 0]))
    assert count.tolist() == [5, 5, 6, 6, 7, 7, 0]
    assert columns.split.tolist() == [0, 0, 2, 2]


def test_features_have_their_scales(tmp_path: Path) -> None:
    write_regions(tmp_path / "a.npz")
    columns = read_voc(tmp_path, {"a.npz": 0})
    scale = torch.tensor([255.0] * 3 + [510.0] * 3 + [255.0] * 6 + [4.0] * 2)
    raw = torch.cat([torch.arange(48.0).reshape(12, 4).T, torch.arange(8.0).reshape(2, 4).T], dim=1)
    torch.testing.assert_close(columns.nodes["x"], raw / scale)
    assert columns.nodes["y"].tolist() == [0, 20, 3, 1]


def test_arrays_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    write_regions(tmp_path / "a.npz", sobel=np.array([1]))
    with pytest.raises(UserError, match=r"a\.npz must be regions whose columns fit together"):
        read_voc(tmp_path, {"a.npz": 0})
    write_regions(tmp_path / "a.npz", offset=np.array([1, 2, 1, 5]))
    with pytest.raises(UserError, match=r"edge_index must hold nodes 0 to 0 in graph 1"):
        GraphStore(read_voc(tmp_path, {"a.npz": 0}))


@layouts
def test_regions_have_the_colours_and_classes_of_their_place(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, NAMES, MASKS)
    store = build_benchmark("pascalvoc-sp", tmp_path, tmp_path / "sets")
    assert len(store) == 4
    assert sorted(store.split.tolist()) == [0, 0, 1, 2]
    graph = store[0]
    assert graph.x.shape[1] == 14
    # 24 x 32 pixels, cut into squares of four
    assert len(graph.x) == 192
    assert graph.edge_attr.shape == (graph.edge_index.shape[1], 2)
    row, column = graph.x[:, 12].round().long(), graph.x[:, 13].round().long()
    assert torch.equal(graph.y, torch.from_numpy(MASK).long()[row, column])
    # away from the borders quarter 0 is red and quarter 3 yellow; JPEG costs a few shades
    for quarter, colour in ((0, [200, 0, 0]), (3, [200, 200, 0])):
        inside = graph.x[(row // 12 * 2 + column // 16) == quarter]
        off = inside[:, :3].median(dim=0).values * 255 - torch.tensor(colour)
        assert off.abs().max() < 10
    reverse = graph.edge_index.flip(0)
    assert sorted(reverse.T.tolist()) == sorted(graph.edge_index.T.tolist())


def test_a_list_of_test_images_takes_the_place_of_the_halves(tmp_path: Path) -> None:
    write_sbd(tmp_path, NAMES | {"test": ["2009_000001"], "val": ["2009_000002"]}, MASKS)
    columns = read_voc_folder(tmp_path)
    assert columns.split.tolist() == [0, 0, 1, 2]


def test_halves_have_each_kind_as_often() -> None:
    kinds = np.random.default_rng(0).integers(0, 21, 2857)
    part = halve(kinds.tolist())
    assert np.bincount(part).tolist() == [0, 1428, 1429]
    counts = [np.bincount(kinds[part == number], minlength=21) for number in (1, 2)]
    assert np.abs(counts[0] - counts[1]).max() <= 1
    assert np.array_equal(part, halve(kinds.tolist()))
    assert not np.array_equal(part, halve(kinds.tolist(), seed=42))
    # not the first ones of each kind
    assert 0.45 < (part[:500] == 1).mean() < 0.55


def test_void_pixels_take_the_nearest_class(tmp_path: Path) -> None:
    mask = np.array([[1, 255, 255, 2], [1, 255, 255, 2]], np.uint8)
    Image.fromarray(mask).save(tmp_path / "a.png")
    assert read_mask(tmp_path / "a.png").tolist() == [[1, 1, 2, 2], [1, 1, 2, 2]]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.full((24, 32), 21), "y must be 0 to 20, got 0 to 21"),
        (np.full((24, 30), 1), r"2009_000001\.mat must have the shape \(24, 32\), got \(24, 30\)"),
    ],
)
def test_wrong_masks_are_reported_and_nothing_stays(
    tmp_path: Path, mask: np.ndarray, message: str
) -> None:
    write_sbd(tmp_path, NAMES, MASKS | {"2009_000001": mask})
    Image.new("RGB", (32, 24)).save(tmp_path / "img" / "2009_000001.jpg")
    with pytest.raises(UserError, match=message):
        build_benchmark("pascalvoc-sp", tmp_path, tmp_path / "sets")
    assert not list((tmp_path / "sets").rglob("*.safetensors"))


def test_damaged_masks_and_empty_lists_are_named(tmp_path: Path) -> None:
    write_sbd(tmp_path, NAMES, MASKS)
    cut(tmp_path / "cls" / "2008_000001.mat")
    with pytest.raises(UserError, match=r"2008_000001\.mat must be a MATLAB 5 file with the bytes"):
        read_voc_folder(tmp_path)
    (tmp_path / "val.txt").write_text("")
    with pytest.raises(UserError, match=r"val\.txt must hold at least one name, got none"):
        read_voc_folder(tmp_path)

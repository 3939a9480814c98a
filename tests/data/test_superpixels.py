"""Superpixels joined with their nearest."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data import superpixels
from graphmamba.data.superpixels import join_nearest, read_superpixels, split_of
from graphmamba.errors import UserError
from tests.helpers.raw_files import write_superpixels


def nearest_written_out(centre: np.ndarray) -> tuple[list[list[int]], list[list[float]]]:
    """The recipe, one node at a time."""
    distance = np.sqrt(((centre[:, None] - centre[None]) ** 2).sum(-1))
    sigma = np.sort(distance, axis=1)[:, :9].sum(1) / 8 + 1e-8
    similar = np.exp(-((distance / sigma[:, None]) ** 2))
    similar = 0.5 * (similar + similar.T)
    np.fill_diagonal(similar, -1)
    order = np.argsort(-similar, axis=1)[:, :8]
    return order.tolist(), np.take_along_axis(similar, order, 1).tolist()


def test_neighbours_are_those_of_the_recipe() -> None:
    centre = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    ptr = torch.tensor([0, 20, 45, 45, 60])
    targets, weights = join_nearest(centre, ptr)
    for begin, end in ((0, 20), (20, 45), (45, 60)):
        expected, similar = nearest_written_out(centre[begin:end].double().numpy())
        assert targets[begin:end].tolist() == expected
        torch.testing.assert_close(weights[begin:end], torch.tensor(similar))


def test_neighbours_are_the_same_however_many_images_are_joined_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    centre = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
    ptr = torch.arange(0, 301, 20)
    at_once = join_nearest(centre, ptr)
    monkeypatch.setattr(superpixels, "NUMBERS_AT_ONCE", 800)
    for one, other in zip(at_once, join_nearest(centre, ptr), strict=True):
        assert torch.equal(one, other)


@pytest.mark.realdata
@pytest.mark.parametrize(("file", "colours"), [("mnist_75sp.npz", 1), ("cifar10_150sp.npz", 3)])
def test_edges_of_real_superpixels_are_those_of_the_recipe(
    file: str, colours: int, data_folder: Path
) -> None:
    columns = read_superpixels(data_folder, file, colours, images=40)
    weights = columns.edges["edge_attr"].reshape(-1, 8)
    targets = columns.edge_index[1].reshape(-1, 8)
    for begin, end in pairwise(columns.node_ptr.tolist()):
        centre = columns.nodes["x"][begin:end, colours:].double().numpy()
        expected, similar = nearest_written_out(centre)
        torch.testing.assert_close(weights[begin:end], torch.tensor(similar))
        # places are rounded, so that a few neighbours are equally near
        same = (targets[begin:end] == torch.tensor(expected)).float().mean()
        assert same > 0.95


@pytest.mark.parametrize("colours", [1, 3])
def test_columns_and_out_degrees(tmp_path: Path, colours: int) -> None:
    write_superpixels(tmp_path / "a.npz.xz", colours)
    columns = read_superpixels(tmp_path, "a.npz", colours)
    assert columns.nodes["x"].shape == (36, colours + 2)
    assert columns.nodes["x"].max() <= 1
    # 8 out-edges a node; graphs of at most nine nodes are complete
    assert columns.edge_ptr.diff().tolist() == [96, 72, 6, 96]
    assert columns.edges["edge_attr"].shape == (270, 1)
    first = columns.edge_index[:, :96]
    assert first[0].bincount().tolist() == [8] * 12
    assert not (columns.edge_index[0] == columns.edge_index[1]).any()
    assert columns.edge_index[:, 168:174].max() == 2


def test_fewer_images_are_the_first_ones(tmp_path: Path) -> None:
    write_superpixels(tmp_path / "a.npz", 1)
    every, some = (read_superpixels(tmp_path, "a.npz", 1, images) for images in (None, 2))
    assert torch.equal(some.edge_index, every.edge_index[:, :168])
    assert some.graphs["y"].tolist() == [3, 0]


def test_split_takes_validation_from_the_front() -> None:
    split = split_of(60_000)
    assert split.bincount().tolist() == [45_000, 5_000, 10_000]
    assert split[[0, 4_999, 5_000, 49_999, 50_000]].tolist() == [1, 1, 0, 0, 2]


def test_wrong_arrays_are_named(tmp_path: Path) -> None:
    write_superpixels(tmp_path / "a.npz", 1)
    with pytest.raises(UserError, match=r"value must have the shape \(3, 36\), got \(1, 36\)"):
        read_superpixels(tmp_path, "a.npz", 3)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("label", [1, 2, 3, 10], "label must be below 10, got 10"),
        ("label", [1, 2, -3, 0], "label must not be negative, got -3"),
        ("label", [1.0, 2.5, 3.0, 0.0], "label must hold integers, 1-dimensional, got float64"),
        ("label", [1, 2, 3], "label must have 4 entries, got 3"),
        ("value", np.full((1, 36), np.nan), "value must hold finite numbers, got nan"),
        ("value", 3, r"value must have the shape \(1, 0\), got \(\)"),
        ("centre", np.full((2, 36), -np.inf), "centre must hold finite numbers, got -inf"),
        ("centre", np.full((2, 36), "a"), "centre must hold numbers, got <U1"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, name: str, values: object, told: str) -> None:
    write_superpixels(tmp_path / "a.npz", 1, **{name: np.array(values)})
    with pytest.raises(UserError, match=rf"a\.npz: {told}"):
        read_superpixels(tmp_path, "a.npz", 1)

"""MNIST and CIFAR10 as superpixels."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.datasets.slic import SlicRecipe, find_superpixels
from graphmamba.data.datasets.sources import build_benchmark, open_benchmark
from graphmamba.data.datasets.superpixels import (
    CIFAR_RECIPE,
    MNIST_RECIPE,
    join_nearest,
    read_cifar10,
    read_mnist,
    read_superpixels,
    shuffled_nodes,
)
from graphmamba.errors import UserError
from tests.helpers.image_files import smooth_noise, write_cifar_folder, write_idx, write_mnist
from tests.helpers.raw_files import write_superpixels

pytest.importorskip("skimage")
FLOAT16 = 2**-12
"""What rounding a number below 1 to float16 costs at most."""


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


def test_wrong_arrays_are_named(tmp_path: Path) -> None:
    write_superpixels(tmp_path / "a.npz", 1)
    with pytest.raises(UserError, match=r"a\.npz must be superpixels whose columns fit together"):
        read_superpixels(tmp_path, "a.npz", 3)


def nodes_written_out(image: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """Mean colours and centres, one region at a time."""
    regions = find_superpixels(image, recipe)
    rows = []
    for number in range(regions.max() + 1):
        where = np.argwhere(regions == number)
        colours = (image / 255)[regions == number].mean(axis=0)
        rows.append([*colours, *where.mean(axis=0) / image.shape[:2]])
    return np.array(rows)


def assert_same_rows(rows: np.ndarray, expected: np.ndarray, off: float = 1e-9) -> None:
    """Each row has its equal, in whatever order."""
    assert rows.shape == expected.shape
    distance = np.abs(rows[:, None] - expected[None]).max(axis=2)
    assert sorted(distance.argmin(axis=1)) == list(range(len(rows)))
    assert distance.min(axis=1).max() <= off


def test_the_order_is_random_and_the_same_each_time() -> None:
    image = smooth_noise(32, 32, 3)
    in_order = nodes_written_out(image, CIFAR_RECIPE)
    first, again, other = (shuffled_nodes(image, CIFAR_RECIPE, number) for number in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.allclose(first, in_order)
    for nodes in (first, other):
        assert_same_rows(nodes, in_order)


def test_mnist_is_built_from_its_images(tmp_path: Path) -> None:
    images = write_mnist(tmp_path)
    built = build_benchmark("mnist", tmp_path, tmp_path / "sets")
    store = open_benchmark("mnist", tmp_path / "sets")
    assert len(store) == len(built) == 5
    # the first 5,000 training images are for validation, here all of them
    assert store.split.tolist() == [1, 1, 1, 2, 2]
    assert store.source == "built from MNIST's images"
    for number in range(5):
        graph = store[number]
        expected = nodes_written_out(images[number][..., None], MNIST_RECIPE)
        assert 20 < len(expected) <= 75
        assert_same_rows(graph.x.numpy(), expected, FLOAT16)
        assert graph.edge_index[0].bincount().tolist() == [8] * len(expected)
        assert 0 < graph.edge_attr.max() <= 1
        assert int(graph.y) == number
        # rounded as published
        assert torch.equal(graph.x, graph.x.half().float())
        assert torch.equal(graph.edge_attr, graph.edge_attr.half().float())


def test_cifar10_is_built_from_its_binary_version(tmp_path: Path) -> None:
    images = write_cifar_folder(tmp_path)
    columns = read_cifar10(tmp_path)
    assert columns.graphs["y"].tolist() == [3, 4, 5, 6, 7, 8]
    assert columns.split.tolist() == [1, 1, 1, 1, 1, 2]
    first = columns.nodes["x"][: columns.node_ptr[1]]
    expected = nodes_written_out(images[0], CIFAR_RECIPE)
    assert_same_rows(first.numpy(), expected, FLOAT16)
    assert torch.equal(columns.edge_ptr, 8 * columns.node_ptr)


def test_finished_superpixels_are_taken_where_they_are(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_superpixels(tmp_path / "mnist_75sp.npz", 1)
    assert read_mnist(tmp_path).source == "built from mnist_75sp.npz"


def test_images_and_labels_that_do_not_fit_together_are_rejected(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.array([1, 2]))
    with pytest.raises(UserError, match="images must have one size and a label each"):
        build_benchmark("mnist", tmp_path, tmp_path / "sets")
    write_mnist(tmp_path)
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", np.zeros((2, 20, 28)))
    with pytest.raises(UserError, match="images must have one size and a label each"):
        read_mnist(tmp_path)
    assert not list((tmp_path / "sets").rglob("*.safetensors"))


def test_pickles_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02")
    with pytest.raises(UserError, match=r"binary version, data_batch_1\.bin .* never loaded"):
        read_cifar10(tmp_path)

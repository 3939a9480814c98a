"""Arrays and images in published files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphmamba.data.datasets.files import (
    find_file,
    read_arrays,
    read_cifar,
    read_class_mask,
    read_idx,
    read_picture,
)
from graphmamba.errors import UserError
from tests.helpers.image_files import quarters, smooth_noise, write_cifar, write_idx
from tests.helpers.raw_files import cut, write_arrays


def test_arrays_are_read_packed_and_plain(tmp_path: Path) -> None:
    for name in ("a.npz", "a.npz.xz"):
        write_arrays(tmp_path / name, row=np.arange(300))
        assert read_arrays(tmp_path / name, ["row"])["row"].tolist() == list(range(300))
        with pytest.raises(UserError, match=r"a\.npz.* must be a whole .npz file of label .*label"):
            read_arrays(tmp_path / name, ["label"])
        cut(tmp_path / name)
        with pytest.raises(UserError, match=f"{name} must be a whole .npz file"):
            read_arrays(tmp_path / name, ["row"])
    write_arrays(tmp_path / "a.npz", row=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="without objects"):
        read_arrays(tmp_path / "a.npz", ["row"])
    with pytest.raises(UserError, match=r"must hold b\.npz\.xz or b\.npz, got no such file"):
        find_file(tmp_path, "b.npz.xz", "b.npz")


@pytest.mark.parametrize("name", ["images-idx3-ubyte", "images-idx3-ubyte.gz"])
def test_idx_files_are_read_packed_or_not(tmp_path: Path, name: str) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / name, values)
    assert np.array_equal(read_idx(tmp_path / name, 3), values)
    with pytest.raises(UserError, match=f"{name} must be a whole idx file of bytes with 1 axes"):
        read_idx(tmp_path / name, 1)
    cut(tmp_path / name)
    with pytest.raises(UserError, match=f"{name} must be a whole "):
        read_idx(tmp_path / name, 3)


def test_cifar_rows_are_a_class_and_three_planes(tmp_path: Path) -> None:
    images, labels = smooth_noise(64, 32, 3).reshape(2, 32, 32, 3), np.array([9, 0])
    write_cifar(tmp_path / "a.bin", images, labels)
    content = (tmp_path / "a.bin").read_bytes()
    assert content[0] == 9
    assert content[1 + 1024] == images[0, 0, 0, 1]
    pixels, classes = read_cifar(tmp_path / "a.bin")
    assert np.array_equal(pixels, images)
    assert classes.tolist() == [9, 0]
    (tmp_path / "a.bin").write_bytes(content[:-1])
    with pytest.raises(UserError, match=r"a\.bin must be a whole file of CIFAR10's binary version"):
        read_cifar(tmp_path / "a.bin")


def test_grey_photographs_have_three_equal_colours(tmp_path: Path) -> None:
    grey = smooth_noise(8, 9, 1)[..., 0]
    Image.fromarray(grey).save(tmp_path / "a.png")
    assert np.array_equal(read_picture(tmp_path / "a.png"), grey[..., None].repeat(3, 2))


def test_damaged_and_missing_photographs_are_named(tmp_path: Path) -> None:
    Image.fromarray(smooth_noise(80, 80, 3)).save(tmp_path / "a.jpg")
    cut(tmp_path / "a.jpg")
    with pytest.raises(UserError, match=r"a\.jpg must be a whole image: "):
        read_picture(tmp_path / "a.jpg")
    with pytest.raises(UserError, match=r"must hold b\.jpg, got no such file"):
        read_picture(tmp_path / "b.jpg")


def test_masks_have_one_number_a_pixel(tmp_path: Path) -> None:
    Image.fromarray(quarters(4, 6)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a class number .* got uint8 of the shape \(4, 6, 3\)"):
        read_class_mask(tmp_path / "a.png")

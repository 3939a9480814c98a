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
from tests.helpers.raw_files import write_arrays


def test_arrays_are_read_packed_and_plain(tmp_path: Path) -> None:
    for name in ("a.npz", "a.npz.xz"):
        write_arrays(tmp_path / name, row=np.arange(3))
        assert read_arrays(tmp_path / name, ["row"])["row"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["a.npz", "a.npz.xz"])
@pytest.mark.parametrize("kept", [0, 40, -20])
def test_a_cut_file_is_named(tmp_path: Path, name: str, kept: int) -> None:
    path = tmp_path / name
    write_arrays(path, row=np.arange(300))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=f"{name} must be a whole .npz file"):
        read_arrays(path, ["row"])


def test_objects_are_rejected(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", row=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="without objects"):
        read_arrays(tmp_path / "a.npz", ["row"])


def test_missing_arrays_and_files_are_named(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", row=np.arange(3))
    with pytest.raises(UserError, match="must hold the array 'label', got row"):
        read_arrays(tmp_path / "a.npz", ["row", "label"])
    with pytest.raises(UserError, match=r"must hold b\.npz\.xz or b\.npz, got no such file"):
        find_file(tmp_path, "b.npz.xz", "b.npz")


@pytest.mark.parametrize("name", ["images-idx3-ubyte", "images-idx3-ubyte.gz"])
def test_idx_files_are_read_packed_or_not(tmp_path: Path, name: str) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / name, values)
    assert np.array_equal(read_idx(tmp_path / name, 3), values)


def test_cifar_rows_are_a_class_and_three_planes(tmp_path: Path) -> None:
    images, labels = smooth_noise(64, 32, 3).reshape(2, 32, 32, 3), np.array([9, 0])
    write_cifar(tmp_path / "a.bin", images, labels)
    content = (tmp_path / "a.bin").read_bytes()
    assert content[0] == 9
    assert content[1 + 1024] == images[0, 0, 0, 1]
    pixels, classes = read_cifar(tmp_path / "a.bin")
    assert np.array_equal(pixels, images)
    assert classes.tolist() == [9, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"must be an idx file of bytes with 1 axes, got the head \[\]"),
        (b"\0\0\x08\x03", r"with 1 axes, got the head \[0, 0, 8, 3\]"),
        (b"\0\0\x0d\x01", r"got the head \[0, 0, 13, 1\]"),
        (b"\0\0\x08\x01\0\0", "must begin with 1 lengths, got 6 bytes in all"),
        (b"\0\0\x08\x01\0\0\0\x03ab", r"must have 11 bytes for the lengths \[3\].* got 10"),
        (b"\0\0\x08\x01\0\0\0\x01ab", r"must have 9 bytes for the lengths \[1\].* got 10"),
        (b"\0\0\x08\x01\0\0\0\0", r"for the lengths \[0\], none of them 0"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "labels").write_bytes(content)
    with pytest.raises(UserError, match=f"labels .*{message}"):
        read_idx(tmp_path / "labels", 1)


def test_truncated_gzip_is_named(tmp_path: Path) -> None:
    write_idx(tmp_path / "a.gz", smooth_noise(20, 20, 3))
    content = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"a\.gz must be a whole gzip file"):
        read_idx(tmp_path / "a.gz", 3)


@pytest.mark.parametrize("size", [0, 3072, 3074])
def test_truncated_cifar_is_named(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(size))
    with pytest.raises(UserError, match=rf"a\.bin must have 3073 bytes for each .* got {size}"):
        read_cifar(tmp_path / "a.bin")


def test_grey_photographs_have_three_equal_colours(tmp_path: Path) -> None:
    grey = smooth_noise(8, 9, 1)[..., 0]
    Image.fromarray(grey).save(tmp_path / "a.png")
    assert np.array_equal(read_picture(tmp_path / "a.png"), grey[..., None].repeat(3, 2))


def test_truncated_photographs_are_named(tmp_path: Path) -> None:
    Image.fromarray(smooth_noise(80, 80, 3)).save(tmp_path / "a.jpg")
    content = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"a\.jpg must be a whole image: "):
        read_picture(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"a\.jpg must be a whole image: cannot identify"):
        read_picture(tmp_path / "a.jpg")
    with pytest.raises(UserError, match=r"must hold b\.jpg, got no such file"):
        read_picture(tmp_path / "b.jpg")


def test_masks_have_one_number_a_pixel(tmp_path: Path) -> None:
    Image.fromarray(quarters(4, 6)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a class number .* got uint8 of the shape \(4, 6, 3\)"):
        read_class_mask(tmp_path / "a.png")

"""Small images, and folders of them as the benchmarks' releases are laid out."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from scipy.ndimage import gaussian_filter

QUADRANTS = np.array([[[200, 0, 0], [0, 200, 0]], [[0, 0, 200], [200, 200, 0]]], np.uint8)
"""Colours of four quarters: red and green above, blue and yellow below."""


def quarters(height: int, width: int) -> np.ndarray:
    """An image of four flat quarters."""
    return QUADRANTS.repeat(height // 2, axis=0).repeat(width // 2, axis=1)


def smooth_noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    """An image with spots of about three pixels, whose colours do not reach 0 and 255."""
    values = np.random.default_rng(seed).random((height, width, channels))
    values = gaussian_filter(values, (1.5, 1.5, 0))
    values = (values - values.min()) / np.ptp(values)
    return (30 + 160 * values).astype(np.uint8)


def photographs() -> list[Image.Image]:
    """Four photographs that come with scikit-image."""
    skimage = pytest.importorskip("skimage")
    folder = Path(skimage.__file__).parent / "data"
    paths = [folder / name for name in ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")]
    if not all(path.is_file() for path in paths):
        pytest.skip("this version of scikit-image brings no photographs")
    return [Image.open(path).convert("RGB") for path in paths]


def write_idx(path: Path, values: np.ndarray) -> None:
    head = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, train: int = 3, test: int = 2) -> np.ndarray:
    """Write digits, so to speak, and return them, training first."""
    images = smooth_noise(28 * (train + test), 28, 1).reshape(-1, 28, 28)
    images[images < 90] = 0
    labels = np.arange(train + test) % 10
    for name, part in (("train", slice(None, train)), ("t10k", slice(train, None))):
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", images[part])
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels[part])
    return images


def write_cifar(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    path.write_bytes(np.concatenate([labels[:, None], planes], 1).astype(np.uint8).tobytes())


def write_cifar_folder(folder: Path) -> np.ndarray:
    """Six files of one image each; class 3, 4, ..."""
    images = smooth_noise(6 * 32, 32, 3).reshape(6, 32, 32, 3)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for number, name in enumerate(names):
        write_cifar(folder / name, images[number : number + 1], np.array([3 + number]))
    return images


def write_voc(folder: Path, names: dict[str, list[str]], masks: dict[str, np.ndarray]) -> None:
    """Pascal VOC's layout: quarters, and masks through a palette."""
    for part in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (folder / part).mkdir(parents=True)
    for part, listed in names.items():
        (folder / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("\n".join(listed))
    for name, mask in masks.items():
        image = Image.fromarray(quarters(*mask.shape))
        image.save(folder / "JPEGImages" / f"{name}.jpg", quality=100, subsampling=0)
        drawn = Image.fromarray(mask.astype(np.uint8), "P")
        drawn.putpalette([7] * 768)
        drawn.save(folder / "SegmentationClass" / f"{name}.png")


def write_sbd(folder: Path, names: dict[str, list[str]], masks: dict[str, np.ndarray]) -> None:
    """Layout of the Semantic Boundaries Dataset: masks in MATLAB's format."""
    for part in ("img", "cls"):
        (folder / part).mkdir(parents=True)
    for part, listed in names.items():
        (folder / f"{part}.txt").write_text("\n".join(listed))
    for name, mask in masks.items():
        image = Image.fromarray(quarters(*mask.shape))
        image.save(folder / "img" / f"{name}.jpg", quality=100, subsampling=0)
        content = {"Segmentation": mask.astype(np.uint8), "Boundaries": np.zeros(1)}
        savemat(folder / "cls" / f"{name}.mat", {"GTcls": content}, do_compression=True)


def write_coco(folder: Path, train: int = 3, **other: object) -> None:
    """COCO's layout: quarters of 24 x 32 pixels, each with one object; two categories."""
    (folder / "annotations").mkdir(parents=True)
    for part, count in (("train2017", train), ("val2017", 1)):
        (folder / part).mkdir()
        images, objects = [], []
        for number in range(count):
            name = f"{part}_{number}.jpg"
            Image.fromarray(quarters(24, 32)).save(folder / part / name, quality=100, subsampling=0)
            images.append({"id": 7 + number, "file_name": name, "height": 24, "width": 32})
            upper_left: dict[str, object] = {
                "id": 100 + number,
                "image_id": 7 + number,
                "category_id": 90,
                "segmentation": [[0, 0, 16, 0, 16, 12, 0, 12]],
                "iscrowd": 0,
            }
            objects.append(upper_left | other)
        content = {
            "images": images,
            "annotations": objects,
            "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}],
        }
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))

"""Small files of the benchmarks' raw kinds."""

import csv
import gzip
import io
import lzma
from pathlib import Path

import numpy as np

from graphmamba.data.datasets.peptides import TARGETS

SMILES = ["CC", "CCO", "C1CC1", "CC(=O)[O-]", "c1ccccc1", "N"]
LABELS = "[0, 0, 0, 0, 1, 0, 0, 0, 0, 1]"


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)
    packed = lzma.compress(content.getvalue()) if path.suffix == ".xz" else content.getvalue()
    path.write_bytes(packed)


def cut(path: Path) -> None:
    """Keep the first half of a file, as a download that broke off does."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil(path: Path) -> None:
    """Overwrite the middle of a packed file, as a bad disk does."""
    content = path.read_bytes()
    begin, end = len(content) // 3, len(content) // 2
    path.write_bytes(content[:begin] + b"\xff" * (end - begin) + content[end:])


def write_table(path: Path, names: list[str], rows: list[list[object]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([names, *rows])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_peptides(folder: Path, labels: str = LABELS) -> None:
    rows: list[list[object]] = [[i, text, "A", LABELS, i] for i, text in enumerate(SMILES)]
    rows[2][3] = labels
    names = ["", "smiles", "peptide_seq", "labels", "identifier"]
    write_table(folder / "peptide_multi_class_dataset.csv.gz", names, rows)
    write_arrays(folder / "peptide_split.npz", split=np.array([0, 0, 1, 2, 0, 2], np.uint8))
    targets: list[list[object]] = [
        [i, "train", "flat", *(float(i * column) for column in range(1, 12))] for i in (4, 0, 3)
    ]
    write_table(
        folder / "peptide_struct_partial.csv",
        ["lrgb_row", "lrgb_split", "match", *TARGETS],
        targets,
    )


def write_malnet(folder: Path, **other: np.ndarray) -> None:
    """Three graphs: names with gaps; a node with a self-loop alone (9), one with more (2)."""
    arrays = {
        "edge": np.array([[0, 7, 2, 9, 1, 3, 0], [7, 2, 2, 9, 0, 1, 1]], np.int16),
        "edge_ptr": np.array([0, 4, 6, 7], np.int32),
        "num_nodes": np.array([4, 3, 2], np.int32),
        "label": np.array([1, 0, 4], np.uint8),
        "split": np.array([0, 1, 2], np.uint8),
    }
    write_arrays(folder / "malnet_tiny.npz.xz", **arrays | other)


def write_superpixels(path: Path, colours: int, **other: np.ndarray) -> None:
    """Four images of 12, 9, 3 and 12 nodes."""
    random = np.random.default_rng(0)
    arrays = {
        "value": random.integers(0, 1021, (colours, 36)).astype(np.uint16),
        "centre": random.integers(0, 1024, (2, 36)).astype(np.uint16),
        "ptr": np.array([0, 12, 21, 24, 36], np.int32),
        "label": np.array([3, 0, 9, 1], np.uint8),
    }
    write_arrays(path, **arrays | other)


def write_regions(path: Path, **other: np.ndarray) -> None:
    """Two images: a triangle of regions, and one region alone with its self-loop."""
    arrays = {
        "rgb": np.arange(48).reshape(12, 4).astype(np.uint8),
        "centre": np.arange(8).reshape(2, 4).astype(np.uint16),
        "label": np.array([0, 20, 3, 1], np.uint8),
        "source": np.array([0, 0, 1, 0], np.int16),
        "offset": np.array([1, 2, 1, 0], np.int16),
        "sobel": np.array([255, 51, 0, 0], np.uint8),
        "count": np.array([5, 6, 7, 0], np.uint16),
        "node_ptr": np.array([0, 3, 4], np.int32),
        "edge_ptr": np.array([0, 3, 4], np.int32),
    }
    write_arrays(path, **arrays | other)

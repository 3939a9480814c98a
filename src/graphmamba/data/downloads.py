"""Published files, fetched by PyG's classes; only the fetching is PyG's (see `fetched.py`).

No checksum is published for any of the archives that these classes fetch, and MalNet's server
answers without encryption. What was fetched is named by its own hash, which two people can compare;
its graphs are checked like all others; and nothing in it is run, or unpacked outside of its folder.
"""

import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile

from graphmamba.data.cache import file_hash
from graphmamba.data.fetched import read_fetched
from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.malnet import read_edge_lists
from graphmamba.errors import UserError

BROKEN = (OSError, HTTPException, BadZipFile, tarfile.TarError, EOFError, zlib.error)
"""What a connection, or a file that broke off, brings about."""


def download_lrgb(name: str, root: Path) -> GraphColumns:
    """Fetch a set of the Long Range Graph Benchmark."""
    from torch_geometric.datasets import LRGBDataset

    return _read(name, _without_processing(LRGBDataset, root, name))


def download_gnn_benchmark(name: str, root: Path) -> GraphColumns:
    """Fetch MNIST, CIFAR10, CLUSTER or PATTERN as "Benchmarking GNNs" published them."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    return _read(name, _without_processing(GNNBenchmarkDataset, root, name.upper()))


def download_malnet(root: Path) -> GraphColumns:
    """Fetch MalNet-Tiny's edge lists and read them as the published code does."""
    from torch_geometric.datasets import MalNetTiny

    dataset = _without_processing(MalNetTiny, root / "malnet-tiny", "MalNet-Tiny")
    _fetch(dataset)
    columns = read_edge_lists(Path(dataset.raw_dir))
    return replace(columns, source=_source_of(dataset))


def _read(name: str, dataset: Any) -> GraphColumns:
    _fetch(dataset)
    return replace(read_fetched(name, Path(dataset.raw_dir)), source=_source_of(dataset))


def _source_of(dataset: Any) -> str:
    """Name what was fetched, by its content too: nobody has published what it should be."""
    place, digest = Path(dataset.raw_dir), sha256()
    for path in sorted(each for each in place.rglob("*") if each.is_file()):
        digest.update(f"{path.relative_to(place)} {file_hash(path)}\n".encode())
    return (
        f"{dataset.name}, downloaded by PyG's {type(dataset).__name__}; compared with no checksum, "
        f"since none is published; its files have the hash {digest.hexdigest()[:16]}"
    )


def _without_processing(kind: Any, root: Path, name: str) -> Any:
    """Make one of PyG's data sets that knows where its files are and fetches them, no more."""
    dataset = kind.__new__(kind)
    dataset.root, dataset.name = str(root), name
    return dataset


def _fetch(dataset: Any) -> None:
    """Have the files fetched beside their place, then move them there, whole.

    PyG takes whatever it finds for whole, a file that broke off included.
    """
    if all(Path(path).exists() for path in dataset.raw_paths):
        return
    root, place = dataset.root, Path(dataset.raw_dir)
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".download-", dir=place.parent) as partial:
        dataset.root = partial
        fetched = Path(dataset.raw_dir)
        # some of PyG's classes remove it first, and fail where it is not there
        fetched.mkdir(parents=True)
        try:
            with _kept_inside():
                dataset.download()
        except BROKEN as mistake:
            raise UserError(f"{dataset.name} cannot be downloaded: {mistake}") from mistake
        finally:
            dataset.root = root
        if place.exists():
            shutil.rmtree(place)
        fetched.rename(place)


@contextmanager
def _kept_inside() -> Iterator[None]:
    """Let no member of an archive choose a place outside of the folder that it is unpacked into."""
    before = getattr(tarfile.TarFile, "extraction_filter", None)
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        yield
    finally:
        tarfile.TarFile.extraction_filter = before

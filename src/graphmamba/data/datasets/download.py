"""Published files as PyG's classes fetch them -> columns as the paper's code reads them.

Only the fetching is PyG's, which would unpickle some of the files freely; the readers here take
tensors alone. No checksum is published for any of the archives, and MalNet's server answers without
encryption. What was fetched is named by its own hash, which two people can compare; its graphs are
checked like all others; and nothing in it is run, or unpacked outside of its folder.
"""

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.cache import file_hash
from graphmamba.data.datasets.files import DAMAGED
from graphmamba.data.datasets.malnet import read_edge_lists
from graphmamba.data.datasets.peptides import TARGETS, standardise
from graphmamba.data.datasets.safe_pickle import load_tensors, read_tensor_pickle
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.tables import LINKS, GraphColumns, is_pairs
from graphmamba.errors import UserError

SPLIT_NAMES = ("train", "val", "test")
FIELDS = ("x", "edge_attr", "edge_index", "y")
CONTACT_FIELDS = ("x", "edge_attr", "edge_index", LINKS, "edge_label")
COCO_NUMBERS, COCO_UNUSED = 91, (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""COCO numbers 80 categories and the background up to 90 and leaves some numbers out."""
Columns = Mapping[str, Any]
BROKEN = (OSError, HTTPException, BadZipFile, tarfile.TarError, EOFError, zlib.error)
"""What a connection, or a file that broke off, brings about."""


@dataclass(frozen=True)
class Fetched:
    """The files of one benchmark, by the names that PyG gives them."""

    folder: str
    """Folder of the set, which holds the folders `raw` and `processed`."""
    files: tuple[tuple[str, ...], ...]
    """Names that hold the whole set together, the raw ones first."""
    archives: tuple[str, ...]
    """Names under which the raw ones come, packed."""

    def find(self, folder: Path) -> list[Path] | None:
        """Return the files of the first complete form; None if the folder has none."""
        # Where PyG has both, the raw files are those that nothing has been done to.
        for place in ("", "raw", f"{self.folder}/raw", "processed", f"{self.folder}/processed"):
            for names in self.files:
                paths = [folder / place / name for name in names]
                if all(path.is_file() for path in paths):
                    return paths
        return None

    def find_archive(self, folder: Path) -> Path | None:
        """Return the packed files, if the folder has them."""
        places = [folder / place / name for place in ("", "raw") for name in self.archives]
        return next((path for path in places if path.is_file()), None)

    def is_in(self, folder: Path) -> bool:
        """Tell whether a folder holds the set in any form."""
        return self.find(folder) is not None or self.find_archive(folder) is not None


def _fetched(folder: str, ending: str, *archives: str) -> Fetched:
    """A set whose raw or processed files are one for each split."""
    files = [
        tuple(f"{part}{end}" for part in SPLIT_NAMES) for end in dict.fromkeys((ending, ".pt"))
    ]
    return Fetched(folder, tuple(files), tuple(f"{name}.zip" for name in archives))


def _benchmark_files(name: str) -> Fetched:
    processed = tuple(f"{part}_data.pt" for part in SPLIT_NAMES)
    return Fetched(name, ((f"{name}_v2.pt",), processed), (f"{name}_v2.zip",))


FETCHED: dict[str, Fetched] = {
    "peptides-func": _fetched("peptides-func", ".pt", "peptidesfunc"),
    "peptides-struct": _fetched("peptides-struct", ".pt", "peptidesstruct"),
    "pcqm-contact": _fetched("pcqm-contact", ".pt", "pcqmcontact"),
    "pascalvoc-sp": _fetched(
        "pascalvoc-sp", ".pickle", "pascalvocsp", "voc_superpixels_edge_wt_region_boundary"
    ),
    "coco-sp": _fetched("coco-sp", ".pickle", "cocosp", "coco_superpixels_edge_wt_region_boundary"),
    "mnist": _benchmark_files("MNIST"),
    "cifar10": _benchmark_files("CIFAR10"),
    "cluster": _benchmark_files("CLUSTER"),
    "pattern": _benchmark_files("PATTERN"),
}
"""MalNet-Tiny is missing here: what PyG fetches of it are the edge lists that `malnet.py` reads."""


class _Unneeded:
    """Stands for the class that PyG's processed files name, so that no code of it can run."""


def read_fetched(name: str, folder: Path) -> GraphColumns:
    """Read a benchmark from PyG's raw files, their archive, or the processed files."""
    fetched = FETCHED[name]
    paths = fetched.find(folder)
    if paths is not None:
        return _read_files(name, paths)
    archive = fetched.find_archive(folder)
    if archive is None:
        listed = " or ".join(" and ".join(names) for names in fetched.files)
        raise UserError(f"folder {folder} must hold {listed}, got none of them")
    with TemporaryDirectory() as place:
        for member, content in _members(
            archive, {file for names in fetched.files for file in names}
        ):
            (Path(place) / member).write_bytes(content)
        paths = fetched.find(Path(place))
        if paths is None:
            raise UserError(f"{archive} must hold {' and '.join(fetched.files[0])}, got others")
        return replace(_read_files(name, paths), source=f"built from {archive.name}")


def read_tensors(path: Path) -> Any:
    """Read what `torch.save` wrote; reject all but tensors and plain containers."""
    try:
        return load_tensors(path, [(_Unneeded, "torch_geometric.data.data.Data")])
    # bytes that are no such file end in any way there is
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise UserError(f"{path} must be a whole file of tensors: {first}") from error


def _members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """Only the last part of a member's name counts: none may choose where it goes."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in packed.namelist():
                if Path(member).name in wanted:
                    yield Path(member).name, packed.read(member)
    except DAMAGED as error:
        raise UserError(f"{archive} must be a whole .zip file: {error}") from error


def _read_files(name: str, paths: Sequence[Path]) -> GraphColumns:
    held = [read_tensor_pickle(path) if path.suffix == ".pickle" else read_tensors(path)
            for path in paths]  # fmt: skip
    # One file alone holds all three splits.
    parts = held if len(paths) > 1 else held[0]
    try:
        graphs = [[_graph_of(name, graph) for graph in _graphs_of(name, part)] for part in parts]
        split = torch.repeat_interleave(
            torch.arange(len(graphs)), torch.tensor([len(part) for part in graphs])
        )
        columns = columns_of([graph for part in graphs for graph in part], split)
    except UserError:
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{paths[0]} must hold the graphs of {name}: {error!r}") from error
    y = columns.graphs.get("y")
    # targets of another width are another set's
    if name == "peptides-struct" and y is not None and y.shape[1:] == (len(TARGETS),):
        columns = replace(columns, graphs={"y": standardise(y.float(), str(paths[0].parent))})
    return replace(columns, source=f"built from {', '.join(path.name for path in paths)}")


def _graphs_of(name: str, part: Any) -> Sequence[Columns]:
    """Graphs of one split by the names of their columns, from a raw or a processed file."""
    if isinstance(part, tuple):
        return _unfold(*part[:2])
    if part and isinstance(part[0], dict):
        return list(part)
    fields = CONTACT_FIELDS if name == "pcqm-contact" else FIELDS
    graphs = [dict(zip(fields, values, strict=True)) for values in part]
    if name == "coco-sp":
        return [graph | {"y": renumber(graph["y"])} for graph in graphs]
    return graphs


def _unfold(columns: dict[str, Tensor], slices: dict[str, Tensor] | None) -> list[Columns]:
    """Cut the columns that PyG keeps end to end; a single graph has no boundaries."""
    columns = {name: column for name, column in columns.items() if isinstance(column, Tensor)}
    if slices is None:
        return [columns]
    cut = {
        name: torch.split(column, slices[name].diff().tolist(), dim=int(is_pairs(name)))
        for name, column in columns.items()
    }
    return [dict(zip(cut, rows, strict=True)) for rows in zip(*cut.values(), strict=True)]


def _graph_of(name: str, columns: Columns) -> Data:
    """A graph with the columns that models read, in their types."""
    x, edge_index = columns["x"], columns["edge_index"]
    if name in ("mnist", "cifar10", "cluster", "pattern"):
        graph = Data(x=x.float(), edge_index=edge_index, y=columns["y"].long())
        # whatever edges of block models may have, no model reads it
        if name in ("mnist", "cifar10"):
            if columns.get("pos") is not None:
                graph.x = torch.cat([graph.x, columns["pos"].float()], dim=1)
            if columns.get("edge_attr") is not None:
                graph.edge_attr = columns["edge_attr"].float().reshape(-1, 1)
        return graph
    if name in ("pascalvoc-sp", "coco-sp"):
        edge_attr, y = columns["edge_attr"].float(), torch.as_tensor(columns["y"]).long()
        return Data(x=x.float(), edge_index=edge_index, edge_attr=edge_attr, y=y)
    graph = Data(x=x.long(), edge_index=edge_index, edge_attr=columns["edge_attr"].long())
    if name == "pcqm-contact":
        # the file's one draw of wrong pairs gives way to fresh ones
        graph.edge_label_index = columns[LINKS][:, columns["edge_label"] == 1]
    else:
        graph.y = columns["y"].float()
    return graph


def renumber(labels: Any) -> Int[Tensor, " nodes"]:
    """Number COCO's classes without gaps, as published."""
    is_used = torch.ones(COCO_NUMBERS, dtype=torch.bool)
    is_used[list(COCO_UNUSED)] = False
    given = torch.as_tensor(labels).long()
    if not bool(is_used[given].all()):
        raise ValueError(f"labels {given[~is_used[given]].unique().tolist()} name no category")
    return (is_used.cumsum(0) - 1)[given]


def download_lrgb(name: str, data_dir: Path) -> GraphColumns:
    """Fetch a set of the Long Range Graph Benchmark."""
    from torch_geometric.datasets import LRGBDataset

    return _read(name, _without_processing(LRGBDataset, data_dir, name))


def download_gnn_benchmark(name: str, data_dir: Path) -> GraphColumns:
    """Fetch MNIST, CIFAR10, CLUSTER or PATTERN as "Benchmarking GNNs" published them."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    return _read(name, _without_processing(GNNBenchmarkDataset, data_dir, name.upper()))


def download_malnet(data_dir: Path) -> GraphColumns:
    """Fetch MalNet-Tiny's edge lists and read them as the published code does."""
    from torch_geometric.datasets import MalNetTiny

    dataset = _without_processing(MalNetTiny, data_dir / "malnet-tiny", "MalNet-Tiny")
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


def _without_processing(kind: Any, data_dir: Path, name: str) -> Any:
    """Make one of PyG's data sets that knows where its files are and fetches them, no more."""
    dataset = kind.__new__(kind)
    dataset.root, dataset.name = str(data_dir), name
    return dataset


def _fetch(dataset: Any) -> None:
    """Have the files fetched beside their place, then move them there, whole.

    PyG takes whatever it finds for whole, a file that broke off included.
    """
    if all(Path(path).exists() for path in dataset.raw_paths):
        return
    data_dir, place = dataset.root, Path(dataset.raw_dir)
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".download-", dir=place.parent) as partial:
        dataset.root = partial
        fetched = Path(dataset.raw_dir)
        # some of PyG's classes remove it first, and fail where it is not there
        fetched.mkdir(parents=True)
        try:
            with _kept_inside():
                dataset.download()
        except BROKEN as error:
            raise UserError(f"{dataset.name} cannot be downloaded: {error}") from error
        finally:
            dataset.root = data_dir
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

"""Downloads published files by PyG's classes, and reads them as the paper's code does.

Only the download is PyG's, which would unpickle some of the files; the readers here accept tensors
only. No checksums are published, and MalNet's server uses no encryption: downloads are named by
their own hash, nothing in them is run, and archives cannot write outside of their folder.
"""

import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.cache import file_hash
from graphmamba.data.datasets.files import reading
from graphmamba.data.datasets.malnet import read_edge_lists
from graphmamba.data.datasets.peptides import TARGETS, standardise
from graphmamba.data.datasets.safe_pickle import load_tensors, read_tensor_pickle
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.tables import LINKS, GraphColumns
from graphmamba.errors import UserError

FIELDS = ("x", "edge_attr", "edge_index", "y")
CONTACT_FIELDS = ("x", "edge_attr", "edge_index", LINKS, "edge_label")
# COCO numbers 80 categories and the background up to 90 and leaves some numbers out
COCO_NUMBERS, COCO_UNUSED = 91, (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
GNN_BENCHMARKS = ("mnist", "cifar10", "cluster", "pattern")
# MalNet-Tiny is missing here: what PyG fetches of it are the edge lists that `malnet.py` reads.
RAW_FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("peptides-func", "peptides-struct", "pcqm-contact"), ("train.pt", "val.pt", "test.pt")
    ),
    **dict.fromkeys(("pascalvoc-sp", "coco-sp"), ("train.pickle", "val.pickle", "test.pickle")),
    **{name: (f"{name.upper()}_v2.pt",) for name in GNN_BENCHMARKS},
}


def find_fetched(name: str, folder: Path) -> list[Path] | None:
    """Return PyG's raw files of a benchmark; None if neither the folder nor its `raw` has them."""
    pyg_name = name.upper() if name in GNN_BENCHMARKS else name
    for place in (folder, folder / "raw", folder / pyg_name / "raw"):
        paths = [place / file for file in RAW_FILES.get(name, ())]
        if paths and all(path.is_file() for path in paths):
            return paths
    return None


def read_fetched(name: str, paths: Sequence[Path]) -> GraphColumns:
    """Read a benchmark from PyG's raw files."""
    held = [read_tensor_pickle(path) if path.suffix == ".pickle" else read_tensors(path)
            for path in paths]  # fmt: skip
    # One file alone holds all three splits.
    parts = held if len(paths) > 1 else held[0]
    with reading(paths[0], f"a file of the graphs of {name}"):
        graphs = [[_graph_of(name, _named(name, graph)) for graph in part] for part in parts]
        split = torch.repeat_interleave(
            torch.arange(len(graphs)), torch.tensor([len(part) for part in graphs])
        )
        columns = columns_of([graph for part in graphs for graph in part], split)
    y = columns.graphs.get("y")
    # targets of another width are another set's
    if name == "peptides-struct" and y is not None and y.shape[1:] == (len(TARGETS),):
        columns = replace(columns, graphs={"y": standardise(y.float(), str(paths[0].parent))})
    return replace(columns, source=f"built from {', '.join(path.name for path in paths)}")


def read_tensors(path: Path) -> Any:
    """Read what `torch.save` wrote; reject all but tensors and plain containers."""
    with reading(path, "a whole file of tensors"):
        return load_tensors(path)


def _named(name: str, graph: Any) -> Mapping[str, Any]:
    """Columns of a graph by their names."""
    if isinstance(graph, dict):
        return graph
    columns = dict(zip(CONTACT_FIELDS if name == "pcqm-contact" else FIELDS, graph, strict=True))
    return columns | {"y": renumber(columns["y"])} if name == "coco-sp" else columns


def _graph_of(name: str, columns: Mapping[str, Any]) -> Data:
    """A graph with the columns that models read, in their types."""
    x, edge_index = columns["x"], columns["edge_index"]
    if name in GNN_BENCHMARKS:
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
        # negative pairs of the file are dropped: new ones are sampled for each batch
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


def download(name: str, data_dir: Path) -> GraphColumns:
    """Fetch the published files of a benchmark into a folder, and read them."""
    from torch_geometric.datasets import GNNBenchmarkDataset, LRGBDataset, MalNetTiny

    kind: Any = LRGBDataset
    title = name
    if name == "malnet-tiny":
        kind, title, data_dir = MalNetTiny, "MalNet-Tiny", data_dir / name
    elif name in GNN_BENCHMARKS:
        kind, title = GNNBenchmarkDataset, name.upper()
    # one of PyG's data sets that knows where its files are and fetches them, no more
    dataset = kind.__new__(kind)
    dataset.root, dataset.name = str(data_dir), title
    _fetch(dataset)
    raw = Path(dataset.raw_dir)
    if name == "malnet-tiny":
        columns = read_edge_lists(raw)
    else:
        columns = read_fetched(name, [raw / file for file in RAW_FILES[name]])
    return replace(columns, source=_source_of(dataset))


def _source_of(dataset: Any) -> str:
    """Name what was fetched, by its content too: nobody has published what it should be."""
    place, digest = Path(dataset.raw_dir), sha256()
    for path in sorted(each for each in place.rglob("*") if each.is_file()):
        digest.update(f"{path.relative_to(place)} {file_hash(path)}\n".encode())
    return (
        f"{dataset.name}, downloaded by PyG's {type(dataset).__name__}; compared with no checksum, "
        f"since none is published; its files have the hash {digest.hexdigest()[:16]}"
    )


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
        # whatever a connection, or a file that broke off, brings about
        except Exception as error:
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

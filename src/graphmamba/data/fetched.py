"""Files that PyG's classes have fetched -> columns as the paper's code reads them.

PyG would unpickle some of them freely; the readers here take tensors alone.
"""

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.fetched_files import FETCHED
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.peptides import TARGETS, standardise
from graphmamba.data.raw_files import DAMAGED
from graphmamba.data.tables import LINKS, is_pairs
from graphmamba.data.tensor_pickle import load_tensors, read_tensor_pickle
from graphmamba.errors import UserError

FIELDS = ("x", "edge_attr", "edge_index", "y")
CONTACT_FIELDS = ("x", "edge_attr", "edge_index", LINKS, "edge_label")
COCO_NUMBERS, COCO_UNUSED = 91, (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""COCO numbers 80 categories and the background up to 90 and leaves some numbers out."""
Columns = Mapping[str, Any]


class _Unneeded:
    """Stands for the class that PyG's processed files name, so that no code of it can run."""


def read_fetched(name: str, folder: Path) -> GraphColumns:
    """Read a benchmark from PyG's raw files, their archive, or the processed files.

    Args:
        name: Its name in the catalogue.
        folder: Holds these files, or the folders that PyG's class makes for them.
    """
    fetched = FETCHED[name]
    paths = fetched.find(folder)
    if paths is not None:
        return _read_files(name, paths)
    archive = fetched.find_archive(folder)
    if archive is None:
        listed = " or ".join(" and ".join(names) for names in fetched.files)
        raise UserError(f"folder {folder} must hold {listed}, got none of them")
    with TemporaryDirectory() as place:
        _unpack(archive, Path(place), {file for names in fetched.files for file in names})
        paths = fetched.find(Path(place))
        if paths is None:
            raise UserError(f"{archive} must hold {' and '.join(fetched.files[0])}, got others")
        return replace(_read_files(name, paths), source=f"built from {archive.name}")


def read_tensors(path: Path) -> Any:
    """Read what `torch.save` wrote; refuse all but tensors and plain containers."""
    try:
        return load_tensors(path, [(_Unneeded, "torch_geometric.data.data.Data")])
    # bytes that are no such file end in any way there is
    except Exception as mistake:
        first = str(mistake).partition("\n")[0]
        raise UserError(f"{path} must be a whole file of tensors: {first}") from mistake


def _unpack(archive: Path, place: Path, wanted: set[str]) -> None:
    for name, content in _members(archive, wanted):
        (place / name).write_bytes(content)


def _members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """Only the last part of a member's name counts: none may choose where it goes."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in packed.namelist():
                if Path(member).name in wanted:
                    yield Path(member).name, packed.read(member)
    except DAMAGED as mistake:
        raise UserError(f"{archive} must be a whole .zip file: {mistake}") from mistake


def _read_files(name: str, paths: Sequence[Path]) -> GraphColumns:
    held = [read_tensor_pickle(path) if path.suffix == ".pickle" else read_tensors(path)
            for path in paths]  # fmt: skip
    # One file alone holds all three parts.
    parts = held if len(paths) > 1 else held[0]
    make = MAKE.get(name, _molecule)
    try:
        graphs = [[make(graph) for graph in _graphs_of(name, part)] for part in parts]
        split = torch.repeat_interleave(
            torch.arange(len(graphs)), torch.tensor([len(part) for part in graphs])
        )
        columns = columns_of([graph for part in graphs for graph in part], split)
    except UserError:
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as mistake:
        raise UserError(f"{paths[0]} must hold the graphs of {name}: {mistake!r}") from mistake
    y = columns.graphs.get("y")
    # targets of another width are another set's
    if name == "peptides-struct" and y is not None and y.shape[1:] == (len(TARGETS),):
        columns = replace(columns, graphs={"y": standardise(y.float(), str(paths[0].parent))})
    return replace(columns, source=f"built from {', '.join(path.name for path in paths)}")


def _graphs_of(name: str, part: Any) -> Sequence[Columns]:
    """Graphs of one part by the names of their columns, from a raw or a processed file."""
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


def _molecule(graph: Columns) -> Data:
    return Data(
        x=graph["x"].long(),
        edge_index=graph["edge_index"],
        edge_attr=graph["edge_attr"].long(),
        y=graph["y"].float(),
    )


def _regions(graph: Columns) -> Data:
    return Data(
        x=graph["x"].float(),
        edge_index=graph["edge_index"],
        edge_attr=graph["edge_attr"].float(),
        y=torch.as_tensor(graph["y"]).long(),
    )


def _contacts(graph: Columns) -> Data:
    """Keep the true pairs; the file's one draw of wrong pairs gives way to fresh ones."""
    return Data(
        x=graph["x"].long(),
        edge_index=graph["edge_index"],
        edge_attr=graph["edge_attr"].long(),
        edge_label_index=graph[LINKS][:, graph["edge_label"] == 1],
    )


def _blocks(graph: Columns) -> Data:
    """Take nodes alone: whatever edges of block models may have, no model reads it."""
    return Data(x=graph["x"].float(), edge_index=graph["edge_index"], y=graph["y"].long())


def _image(graph: Columns) -> Data:
    """Put colours and places side by side; give edge weights a column of their own."""
    made = _blocks(graph)
    if graph.get("pos") is not None:
        made.x = torch.cat([graph["x"].float(), graph["pos"].float()], dim=1)
    if graph.get("edge_attr") is not None:
        made.edge_attr = graph["edge_attr"].float().reshape(-1, 1)
    return made


MAKE: dict[str, Callable[[Columns], Data]] = {
    "pascalvoc-sp": _regions,
    "coco-sp": _regions,
    "pcqm-contact": _contacts,
    "mnist": _image,
    "cifar10": _image,
    "cluster": _blocks,
    "pattern": _blocks,
}


def renumber(labels: Any) -> Int[Tensor, " nodes"]:
    """Number COCO's classes without gaps, as published."""
    is_used = torch.ones(COCO_NUMBERS, dtype=torch.bool)
    is_used[list(COCO_UNUSED)] = False
    given = torch.as_tensor(labels).long()
    if not bool(is_used[given].all()):
        raise ValueError(f"labels {given[~is_used[given]].unique().tolist()} name no category")
    return (is_used.cumsum(0) - 1)[given]

"""PascalVOC-SP: regions of photographs, joined where they touch, each with its class.

Long Range Graph Benchmark (https://arxiv.org/abs/2206.08164), compactness 30.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.catalog import VOC_CLASSES
from graphmamba.data.parallel import run_all
from graphmamba.data.raw_files import check_pointers, find_file, read_arrays
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.errors import UserError

FILES = {
    "voc_sp_train_0.npz": 0,
    "voc_sp_train_1.npz": 0,
    "voc_sp_train_2.npz": 0,
    "voc_sp_val.npz": 1,
    "voc_sp_test.npz": 2,
}
"""Each file, and the part that its images are in."""
COLUMNS = (
    "rgb",
    "centre",
    "label",
    "source",
    "offset",
    "sobel",
    "count",
    "node_ptr",
    "edge_ptr",
)
RGB_COLUMNS, CLASSES = 12, len(VOC_CLASSES)
DEVIATIONS = slice(3, 6)
"""Columns that hold standard deviations; their integers are twice as fine."""


def read_voc(folder: Path, files: dict[str, int] = FILES) -> GraphColumns:
    """Read the regions of all images; `files` may name fewer parts."""
    paths = [find_file(folder, f"{file}.xz", file) for file in files]
    found: dict[Path, GraphColumns] = {}

    def read(path: Path) -> None:
        found[path] = _read_part(path)

    run_all(read, paths, "Reading regions")
    graphs = [found[path] for path in paths]
    parts = zip(graphs, files.values(), strict=True)
    return GraphColumns(
        node_ptr=boundaries(torch.cat([each.node_ptr.diff() for each in graphs])),
        edge_ptr=boundaries(torch.cat([each.edge_ptr.diff() for each in graphs])),
        edge_index=torch.cat([each.edge_index for each in graphs], dim=1),
        nodes={name: torch.cat([each.nodes[name] for each in graphs]) for name in ("x", "y")},
        edges={"edge_attr": torch.cat([each.edges["edge_attr"] for each in graphs])},
        split=torch.cat([torch.full((len(each.node_ptr) - 1,), part) for each, part in parts]),
        source=f"built from {', '.join(files)}",
    )


def _read_part(path: Path) -> GraphColumns:
    arrays = read_arrays(path, COLUMNS)
    node_ptr = torch.from_numpy(arrays["node_ptr"].astype(np.int64))
    edge_ptr = torch.from_numpy(arrays["edge_ptr"].astype(np.int64))
    _check(path, arrays)
    source = torch.from_numpy(arrays["source"].astype(np.int32))
    target = source + torch.from_numpy(arrays["offset"].astype(np.int32))
    _check_ends(path, source, target, node_ptr, edge_ptr)
    edge_index = torch.stack([source, target])
    count = torch.from_numpy(arrays["count"].astype(np.float32))
    sobel = (torch.from_numpy(arrays["sobel"].astype(np.float32)) / 255) ** 2
    attributes = torch.stack([sobel, count], dim=1)
    # a boundary joins both ways; the self-loop of an image of one region is already both
    times = torch.where(source == target, 1, 2)
    row = torch.repeat_interleave(torch.arange(len(times)), times)
    is_back = torch.cat([torch.zeros(1, dtype=torch.bool), row[1:] == row[:-1]])[: len(row)]
    edge_index = torch.where(is_back, edge_index.flip(0)[:, row], edge_index[:, row])
    ends = boundaries(times)
    return GraphColumns(
        node_ptr=node_ptr,
        edge_ptr=ends[edge_ptr],
        edge_index=edge_index.long(),
        nodes={"x": _features(arrays), "y": torch.from_numpy(arrays["label"]).long()},
        edges={"edge_attr": attributes[row]},
    )


def _features(arrays: dict[str, np.ndarray]) -> Float[Tensor, "nodes columns"]:
    """Mean, deviation, maximum and minimum of each colour, then the centre in pixels."""
    rgb = torch.from_numpy(arrays["rgb"].T.astype(np.float32)) / 255
    rgb[:, DEVIATIONS] /= 2
    centre = torch.from_numpy(arrays["centre"].T.astype(np.float32)) / 4
    return torch.cat([rgb, centre], dim=1)


def _check(path: Path, arrays: dict[str, np.ndarray]) -> None:
    nodes, edges = len(arrays["label"]), len(arrays["source"])
    shapes = {"rgb": (RGB_COLUMNS, nodes), "centre": (2, nodes), "offset": (edges,)}
    shapes |= {"sobel": (edges,), "count": (edges,), "edge_ptr": arrays["node_ptr"].shape}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise UserError(f"{path}: {name} must have the shape {shape}, got {arrays[name].shape}")
    check_pointers(path, "node_ptr", arrays["node_ptr"], nodes)
    check_pointers(path, "edge_ptr", arrays["edge_ptr"], edges)
    if nodes and int(arrays["label"].max()) >= CLASSES:
        raise UserError(f"{path}: label must be below {CLASSES}, got {int(arrays['label'].max())}")


def _check_ends(
    path: Path,
    source: Int[Tensor, " boundaries_once"],
    target: Int[Tensor, " boundaries_once"],
    node_ptr: Int[Tensor, " boundaries"],
    edge_ptr: Int[Tensor, " boundaries"],
) -> None:
    sizes = torch.repeat_interleave(node_ptr.diff(), edge_ptr.diff())
    for name, ends in (("source", source), ("source + offset", target)):
        wrong = (ends < 0) | (ends >= sizes)
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            raise UserError(
                f"{path}: {name} must be a node of its graph, 0 to {int(sizes[place]) - 1}, "
                f"got {int(ends[place])} at edge {place}"
            )

"""MalNet-Tiny: call graphs of programs, from edge lists (https://arxiv.org/abs/2011.07682).

An edge list has five lines of header, then two node numbers a line. These have gaps. As for the
published scores, the nodes are those that an edge names, but for nodes whose only edge is a
self-loop: 56 of 7 million. PyG 2.2 and later count up to the largest number instead, which adds a
lone node for every gap.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.catalog import MALWARE
from graphmamba.data.datasets.files import find_file, read_arrays, read_names, reading
from graphmamba.data.parallel import Span, for_each_span
from graphmamba.data.store import check_ptr
from graphmamba.data.tables import GraphColumns, boundaries, owner_of
from graphmamba.errors import UserError

HEADER_LINES = 5
MOST_NODES = 1_000_000
"""Numbers of nodes stay below; the largest published one is 14,165, and memory grows with it."""
FILE = "malnet_tiny.npz"
EDGE_LISTS, LISTS = "malnet-graphs-tiny", "split_info_tiny/type"
FILES = f"{FILE}[.xz], or {EDGE_LISTS}/ and {LISTS}/"


def read_malnet(folder: Path) -> GraphColumns:
    """Read all call graphs; node features are left to the local degree profile."""
    # PyG's class puts them into a folder of its own.
    for place in (folder, folder / "raw"):
        if (place / EDGE_LISTS).is_dir():
            return read_edge_lists(place)
    path = find_file(folder, f"{FILE}.xz", FILE)
    packed = read_arrays(path, ["edge", "edge_ptr", "label", "split"])
    with reading(path, "call graphs whose columns fit together"):
        arrays = {
            name: torch.from_numpy(each.astype(np.int64, casting="same_kind"))
            for name, each in packed.items()
        }
        edges, graphs = arrays["edge"].shape[-1], len(arrays["label"])
        check_ptr(f"{path}: edge_ptr", arrays["edge_ptr"], graphs, edges)
        columns = name_compactly(arrays["edge"], arrays["edge_ptr"].diff())
    return replace(
        columns,
        graphs={"y": arrays["label"]},
        split=arrays["split"],
        source=f"built from {path.name}, isolated nodes removed",
    )


def read_edge_lists(folder: Path) -> GraphColumns:
    """Read the files as published: `KIND/FAMILY/NAME.edgelist`, five lines of header in each."""
    parts = [
        read_names(find_file(folder / LISTS, f"{part}.txt")) for part in ("train", "val", "test")
    ]
    names = [name for part in parts for name in part]
    kinds = [name.partition("/")[0] for name in names]
    if wrong := [kind for kind in kinds if kind not in MALWARE]:
        raise UserError(
            f"{folder / LISTS}: names must begin with one of {MALWARE}, got '{wrong[0]}'"
        )
    files = [folder / EDGE_LISTS / f"{name}.edgelist" for name in names]
    edges = [read_edge_list(find_file(file.parent, file.name)) for file in files]
    return replace(
        name_compactly(torch.cat(edges, dim=1), torch.tensor([edge.shape[1] for edge in edges])),
        graphs={"y": torch.tensor([MALWARE.index(kind) for kind in kinds])},
        split=torch.repeat_interleave(torch.arange(3), torch.tensor([len(part) for part in parts])),
        source=f"built from {EDGE_LISTS}, isolated nodes removed",
    )


def read_edge_list(path: Path) -> Int[Tensor, "2 edges"]:
    """Read one graph."""
    import pandas as pd

    with reading(path, f"{HEADER_LINES} lines of header, then two node numbers a line"):
        try:
            rows = pd.read_csv(
                path, sep=r"\s+", skiprows=HEADER_LINES, header=None, dtype=np.int64
            ).to_numpy()
        except pd.errors.EmptyDataError:
            return torch.empty(2, 0, dtype=torch.int64)
        source, target = rows.T
        return torch.from_numpy(np.stack([source, target]))


def name_compactly(
    edge_index: Int[Tensor, "2 edges"],
    edge_counts: Int[Tensor, " graphs"],
) -> GraphColumns:
    """Number the nodes of each graph without gaps, in the order of their numbers."""
    edge_ptr = boundaries(edge_counts)
    least, most = edge_index.aminmax() if edge_index.numel() else (0, 0)
    if least < 0 or most >= MOST_NODES:
        raise UserError(f"nodes must have numbers 0 to {MOST_NODES - 1}, got {least} to {most}")
    names = int(most) + 1
    local = torch.empty_like(edge_index)
    stays = torch.empty(edge_index.shape[1], dtype=torch.bool)
    counts = torch.zeros_like(edge_counts)

    def name(span: Span) -> None:
        rows = span.owner * names + edge_index[:, span.rows]  # [2, edges]
        graphs = span.graphs.stop - span.graphs.start
        is_node = torch.zeros(graphs * names, dtype=torch.bool)
        is_node[rows[:, rows[0] != rows[1]].flatten()] = True
        by_graph = is_node.view(graphs, names)
        number = by_graph.cumsum(dim=1, dtype=torch.int32) - 1
        local[:, span.rows] = number.flatten()[rows].long()
        stays[span.rows] = is_node[rows[0]] & is_node[rows[1]]
        counts[span.graphs] = by_graph.sum(dim=1)

    for_each_span(edge_ptr, name, "Naming nodes")
    graph = owner_of(edge_ptr)[stays]
    return GraphColumns(
        node_ptr=boundaries(counts),
        edge_ptr=boundaries(torch.bincount(graph, minlength=len(edge_counts))),
        edge_index=local[:, stays],
    )

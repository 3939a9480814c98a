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
from graphmamba.data.datasets.files import (
    check_integers,
    check_pointers,
    find_file,
    read_arrays,
    read_names,
)
from graphmamba.data.parallel import Span, for_each_span
from graphmamba.data.splits import SPLITS
from graphmamba.data.tables import GraphColumns, boundaries, owner_of
from graphmamba.errors import UserError

HEADER_LINES = 5
MOST_NODES = 1_000_000
"""Numbers of nodes stay below; the largest published one is 14,165, and memory grows with it."""
PAIR = 2
NEWLINE = ord("\n")
IS_BLANK = np.isin(np.arange(256), list(b" \t\r\n"))
IS_DIGIT = np.isin(np.arange(256), list(b"0123456789"))
FILE = "malnet_tiny.npz"
EDGE_LISTS, LISTS = "malnet-graphs-tiny", "split_info_tiny/type"
FILES = f"{FILE}[.xz], or {EDGE_LISTS}/ and {LISTS}/"


def read_edge_list(path: Path) -> Int[Tensor, "2 edges"]:
    """Read one graph; what is wrong with its file is reported with the line."""
    if not path.is_file():
        raise UserError(f"folder {path.parent} must hold {path.name}, got no such file")
    lines = path.read_bytes().split(b"\n", HEADER_LINES)
    # What follows the last end of a line is a line only where there is something.
    rows = lines.pop() if len(lines) > HEADER_LINES or not lines[-1] else b""
    if len(lines) < HEADER_LINES:
        raise UserError(f"{path} must begin with {HEADER_LINES} lines of header, got {len(lines)}")
    for number, header in enumerate(lines, 1):
        words = header.split()
        if len(words) == PAIR and all(word.isdigit() for word in words):
            raise UserError(
                f"{path}, line {number}: the first {HEADER_LINES} lines must be a header, "
                f"got the edge {_shown(header)}"
            )
    letters = np.frombuffer(rows, np.uint8)
    is_blank, line = IS_BLANK[letters], np.cumsum(letters == NEWLINE)
    is_first = ~is_blank
    is_first[1:] &= is_blank[:-1]
    line_of = line[is_first]  # of each word
    if not len(line_of):
        return torch.empty(2, 0, dtype=torch.int64)
    _reject(path, rows, line[~is_blank & ~IS_DIGIT[letters]])
    counts = np.bincount(line_of)
    _reject(path, rows, np.flatnonzero((counts != 0) & (counts != PAIR)))
    # What does not fit into 64 bits is read as the largest number that does.
    numbers = np.fromstring(rows, np.int64, sep=" ")
    _reject(path, rows, line_of[numbers >= MOST_NODES])
    return torch.from_numpy(numbers.reshape(-1, PAIR).T.copy())


def _reject(path: Path, rows: bytes, lines: np.ndarray) -> None:
    """Tell of the first of the lines, if there is one."""
    if len(lines):
        number = int(lines[0])
        raise UserError(
            f"{path}, line {HEADER_LINES + 1 + number}: must be two node numbers, "
            f"0 to {MOST_NODES - 1}, got {_shown(rows.split(NEWLINE.to_bytes())[number])}"
        )


def _shown(line: bytes) -> str:
    return repr(line.strip()[:40].decode(errors="backslashreplace"))


def read_malnet(folder: Path) -> GraphColumns:
    """Read all call graphs; node features are left to the local degree profile."""
    # PyG's class puts them into a folder of its own.
    for place in (folder, folder / "raw"):
        if (place / EDGE_LISTS).is_dir():
            return read_edge_lists(place)
    if not any((folder / name).is_file() for name in (FILE, f"{FILE}.xz")):
        raise UserError(f"folder {folder} must hold {FILES}, got none of them")
    path = find_file(folder, f"{FILE}.xz", FILE)
    arrays = read_arrays(path, ["edge", "edge_ptr", "num_nodes", "label", "split"])
    _check(path, arrays)
    edge_index = torch.from_numpy(arrays["edge"].astype(np.int64))
    edge_counts = torch.from_numpy(np.diff(arrays["edge_ptr"]).astype(np.int64))
    graphs = name_compactly(edge_index, edge_counts)
    return replace(
        graphs,
        graphs={"y": torch.from_numpy(arrays["label"].astype(np.int64))},
        split=torch.from_numpy(arrays["split"].astype(np.int64)),
        source=f"built from {path.name}, isolated nodes removed",
    )


def read_edge_lists(folder: Path) -> GraphColumns:
    """Read the files as published: `KIND/FAMILY/NAME.edgelist`, five lines of header in each."""
    names: list[str] = []
    split: list[int] = []
    for part, file in enumerate(("train.txt", "val.txt", "test.txt")):
        listed = read_names(find_file(folder / LISTS, file))
        names += listed
        split += [part] * len(listed)
    if not names:
        raise UserError(f"{folder / LISTS} must name at least one graph, got empty lists")
    kinds = [name.partition("/")[0] for name in names]
    for name, kind in zip(names, kinds, strict=True):
        if kind not in MALWARE:
            raise UserError(
                f"{folder / LISTS}: names must begin with one of {MALWARE}, got '{name}'"
            )
    edges = [read_edge_list(folder / EDGE_LISTS / f"{name}.edgelist") for name in names]
    counts = torch.tensor([edge.shape[1] for edge in edges])
    return replace(
        name_compactly(torch.cat(edges, dim=1), counts),
        graphs={"y": torch.tensor([MALWARE.index(kind) for kind in kinds])},
        split=torch.tensor(split),
        source=f"built from {EDGE_LISTS}, isolated nodes removed",
    )


def name_compactly(
    edge_index: Int[Tensor, "2 edges"],
    edge_counts: Int[Tensor, " graphs"],
) -> GraphColumns:
    """Number the nodes of each graph without gaps, in the order of their numbers."""
    edge_ptr = boundaries(edge_counts)
    names = int(edge_index.max()) + 1 if edge_index.numel() else 1
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


def _check(path: Path, arrays: dict[str, np.ndarray]) -> None:
    check_integers(path, "edge", arrays["edge"], MOST_NODES, axes=2)
    for name, end in (("label", len(MALWARE)), ("split", len(SPLITS)), ("num_nodes", None)):
        check_integers(path, name, arrays[name], end)
    edge, graphs = arrays["edge"], len(arrays["label"])
    if len(edge) != PAIR:
        raise UserError(f"{path}: edge must have two rows, got the shape {edge.shape}")
    check_pointers(path, "edge_ptr", arrays["edge_ptr"], edge.shape[1])
    for name, rows in (("edge_ptr", graphs + 1), ("num_nodes", graphs), ("split", graphs)):
        if len(arrays[name]) != rows:
            raise UserError(f"{path}: {name} must have {rows} entries, got {len(arrays[name])}")

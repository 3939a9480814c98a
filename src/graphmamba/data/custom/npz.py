"""One `.npz` with the arrays of all graphs -> columns and a task, checked one by one."""

import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice, check_is
from graphmamba.data.catalog import Level
from graphmamba.data.custom.labels import (
    LINK_TASK,
    CustomData,
    LabelRule,
    Labels,
    Where,
    number_labels,
    numbers_of,
    task_of,
)
from graphmamba.data.custom.one_graph import MASKS, read_masks
from graphmamba.data.splits import SPLITS
from graphmamba.data.tables import LINKS, NODE_SPLIT, GraphColumns, Pairs
from graphmamba.errors import UserError

REQUIRED = ("node_ptr", "edge_ptr", "edge_index")
LINK_ARRAYS = ("pair_ptr", LINKS, "edge_label")
KNOWN = (*REQUIRED, "x", "edge_attr", "y", "split", *MASKS, *LINK_ARRAYS)
UNLABELLED = frozenset(KNOWN) - {"y", "edge_label", *MASKS}
"""What is read of graphs to predict."""
LEVELS: tuple[Level, ...] = ("graph", "node", "link")
MOST_BARE_NODES = 1 << 28
"""Nodes without features: nothing but `node_ptr` says how many there are, and each takes memory."""
MOST_EXPANDED, MOST_RATIO = 1 << 30, 200
"""Bytes that a file may unpack to whatever its size, and times its size beyond that."""
Arrays = dict[str, Tensor]
PUBLISHED = {
    "node_features": "x", "features": "x", "node_feat": "x",
    **dict.fromkeys(("node_labels", "label", "labels", "graph_label", "graph_labels"), "y"),
    "edge_features": "edge_attr", "edge_feat": "edge_attr", "edges": "edge_index",
    "train_masks": "train_mask", "val_masks": "val_mask", "test_masks": "test_mask",
    "num_nodes_list": "node_ptr", "num_edges_list": "edge_ptr",
}  # fmt: skip
"""What others call the arrays."""
OGB_SIZES = ("num_nodes_list", "num_edges_list")
"""Numbers of nodes and edges of each graph, as OGB has them, which become boundaries."""
NAMES = {"x_names": "x", "edge_attr_names": "edge_attr"}
"""Arrays of words, and whose columns they name."""
BROKEN = (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError)
"""What NumPy and the archive raise over files that are cut off, foreign or made to harm."""


def assemble(
    arrays: Arrays, rule: LabelRule, level: Level | None, source: str, split_index: int = 0
) -> CustomData:
    """Check the arrays that `docs/custom-data.md` describes and tell what they are there for."""
    check_choice("level", level, (None, *LEVELS))
    masks = {name: arrays.pop(name) for name in MASKS if name in arrays}
    columns = assemble_unlabelled(arrays, source)
    pairs = [name for name in LINK_ARRAYS if name in arrays]
    if level is None and "y" in arrays and pairs:
        raise UserError(f"{source}: array y is there and {pairs[0]}; level must say which is meant")
    level = level or _find_level(arrays, columns, source)
    if level == "link" and not pairs:
        # the edges of one graph, which are split before it is learned
        return CustomData(columns, numbers_of(columns), LINK_TASK)
    labels = _place_labels(arrays, columns, rule, level, source)
    names = () if level == "link" else labels.names
    columns = with_masks(columns, masks, level, split_index)
    return CustomData(columns, numbers_of(columns), task_of(level, labels), names)


def with_masks(
    columns: GraphColumns, masks: Mapping[str, Tensor], level: Level, split_index: int
) -> GraphColumns:
    """Put the split that masks say beside the labels of nodes; its number is named in `source`."""
    if not masks:
        return columns
    if level != "node":
        raise UserError(
            f"{columns.source}: {next(iter(masks))} splits nodes and must be left out for "
            f"level={level!r}"
        )
    if columns.split is not None:
        raise UserError(
            f"{columns.source}: split must be left out beside {next(iter(masks))}: graphs are "
            "split whole or by their nodes"
        )
    nodes = int(columns.node_ptr[-1])
    found, splits = read_masks(masks, nodes, split_index, columns.source)
    columns.nodes[NODE_SPLIT] = found
    if splits > 1:
        told = f"{columns.source}, split {split_index} of {splits} (data.split_index)"
        columns = replace(columns, source=told)
    return columns


def assemble_unlabelled(arrays: Arrays, source: str) -> GraphColumns:
    """Check all arrays but the labels; without boundaries there is one graph."""
    arrays = _as_one_graph(arrays)
    if missing := [name for name in REQUIRED if name not in arrays]:
        found = ", ".join(f"{name} {_kind(values)}" for name, values in arrays.items())
        raise UserError(
            f"{source}: array {missing[0]!r} must be there beside {', '.join(REQUIRED)} (or "
            f"num_nodes_list and num_edges_list, as in OGB), got {found or 'none'}"
        )
    node_ptr = _pointers(arrays, "node_ptr", source)
    if len(node_ptr) == 1:
        raise UserError(f"{source}: node_ptr must hold a graph, got {node_ptr.tolist()}")
    if bool((is_empty := node_ptr.diff() == 0).any()):
        graph = int(is_empty.nonzero()[0])
        raise UserError(f"{source}, graph {graph}: every graph must have a node, got none")
    return _columns(arrays, node_ptr, source)


def _as_one_graph(arrays: Arrays) -> Arrays:
    """Add the boundaries of a single graph where there are none."""
    index = arrays.get("edge_index")
    if index is None or index.dim() != 2 or {"node_ptr", "edge_ptr"} & arrays.keys():  # noqa: PLR2004
        return arrays
    rows = next((arrays[name].shape[0] for name in ("x", "y") if name in arrays), None)
    if rows is None:
        # as many as edges name, where nothing else says it
        rows = int(index.max()) + 1 if index.numel() else 0
    found = {"node_ptr": torch.tensor([0, rows]), "edge_ptr": torch.tensor([0, index.shape[1]])}
    if LINKS in arrays and arrays[LINKS].dim() == 2 and "pair_ptr" not in arrays:  # noqa: PLR2004
        found["pair_ptr"] = torch.tensor([0, arrays[LINKS].shape[1]])
    return arrays | found


def _columns(arrays: Arrays, node_ptr: Int[Tensor, " boundaries"], source: str) -> GraphColumns:
    edge_ptr = _pointers(arrays, "edge_ptr", source, len(node_ptr))
    nodes, edges = int(node_ptr[-1]), int(edge_ptr[-1])
    index = _index(arrays, "edge_index", node_ptr, edge_ptr, source)
    # a model needs some feature; without any, all nodes look alike
    if "x" in arrays:
        x = _numbers(arrays, "x", nodes, node_ptr, source)
    elif nodes <= MOST_BARE_NODES:
        x = torch.ones(nodes, 1)
    else:
        raise UserError(
            f"{source}: node_ptr must end at {MOST_BARE_NODES} at most where there is no x, "
            f"got {nodes}"
        )
    attributes = {}
    if "edge_attr" in arrays:
        attributes["edge_attr"] = _numbers(arrays, "edge_attr", edges, edge_ptr, source)
    split = _split(arrays, len(node_ptr) - 1, source)
    return GraphColumns(node_ptr, edge_ptr, index, {"x": x}, attributes, split=split, source=source)


def _find_level(arrays: Arrays, columns: GraphColumns, source: str) -> Level:
    if "y" not in arrays:
        if not any(name in arrays for name in LINK_ARRAYS):
            raise UserError(
                f"{source}: array 'y' must hold labels of graphs or nodes, or '{LINKS}' "
                f"pairs of them, got {', '.join(arrays)}"
            )
        return "link"
    rows = arrays["y"].shape[0] if arrays["y"].dim() else -1
    nodes, graphs = int(columns.node_ptr[-1]), len(columns.node_ptr) - 1
    if rows not in (graphs, nodes):
        raise UserError(
            f"{source}: y must have a row for each of {graphs} graphs or {nodes} nodes, got {rows}"
        )
    return "graph" if rows == graphs else "node"


def _place_labels(
    arrays: Arrays, columns: GraphColumns, rule: LabelRule, level: Level, source: str
) -> Labels:
    """Read the labels and put them where their level has them."""
    for name in LINK_ARRAYS if level == "link" else ("y",):
        if name not in arrays:
            raise UserError(f"{source}: array {name!r} must be there for level={level!r}, got none")
    if level == "link":
        if rule != LabelRule():
            raise UserError(f"pairs have one label of 0 and 1, got {rule}")
        ptr, index = assemble_pairs(arrays, columns, source)
        label, wanted = arrays["edge_label"], [index.shape[1]]
        if list(label.shape) != wanted or label.is_complex():
            raise UserError(f"{source}: edge_label must have shape {wanted}, got {_kind(label)}")
        labels = number_labels(label, LabelRule("multi-label"), _row_namer(source, ptr))
        columns.pairs[LINKS] = Pairs(ptr, index, {"edge_label": labels.values[:, 0]})
        return labels
    node_ptr = columns.node_ptr
    row_ptr = torch.arange(len(node_ptr)) if level == "graph" else node_ptr
    y, rows = arrays["y"], int(row_ptr[-1])
    if y.dim() not in (1, 2) or y.shape[0] != rows or y.is_complex() or not y.numel():
        raise UserError(f"{source}: y must have shape [{rows}] or [{rows}, labels], got {_kind(y)}")
    labels = number_labels(y, rule, _row_namer(source, row_ptr))
    (columns.graphs if level == "graph" else columns.nodes)["y"] = labels.values
    return labels


def assemble_pairs(
    arrays: Arrays, columns: GraphColumns, source: str
) -> tuple[Int[Tensor, " boundaries"], Int[Tensor, "2 pairs"]]:
    """Check the pairs that are labelled, or to be scored: their boundaries and both nodes."""
    ptr = _pointers(arrays, "pair_ptr", source, len(columns.node_ptr))
    return ptr, _index(arrays, LINKS, columns.node_ptr, ptr, source)


def _pointers(
    arrays: Arrays, name: str, source: str, length: int | None = None
) -> Int[Tensor, " boundaries"]:
    ptr = arrays[name]
    if ptr.dim() != 1 or _is_inexact(ptr) or len(ptr) != (length or max(len(ptr), 1)):
        wanted = "graphs + 1" if length is None else length
        raise UserError(f"{source}: {name} must be whole numbers [{wanted}], got {_kind(ptr)}")
    ptr = ptr.long()
    if int(ptr[0]) or bool((ptr.diff() < 0).any()):
        raise UserError(f"{source}: {name} must begin at 0 and never fall, got {ptr.tolist()[:9]}")
    return ptr


def _index(
    arrays: Arrays,
    name: str,
    node_ptr: Int[Tensor, " boundaries"],
    ptr: Int[Tensor, " boundaries"],
    source: str,
) -> Int[Tensor, "2 pairs"]:
    index, pairs = arrays[name], int(ptr[-1])
    if index.shape != (2, pairs) or _is_inexact(index):
        raise UserError(f"{source}: {name} must be whole numbers [2, {pairs}], got {_kind(index)}")
    index = index.long()
    counts = node_ptr.diff().repeat_interleave(ptr.diff())
    is_wrong = (index < 0) | (index >= counts)
    if bool(is_wrong.any()):
        side, pair = is_wrong.nonzero()[0].tolist()
        raise UserError(
            f"{_row_namer(source, ptr)(pair)}: {name} must be a node of its graph, "
            f"0 to {int(counts[pair]) - 1}, got {int(index[side, pair])}"
        )
    return index


def _numbers(
    arrays: Arrays, name: str, rows: int, ptr: Int[Tensor, " boundaries"], source: str
) -> Float[Tensor, "rows columns"]:
    values = arrays[name]
    if values.dim() != 2 or values.shape[0] != rows or not values.shape[1] or values.is_complex():  # noqa: PLR2004
        hint = f"; a single column has shape [{rows}, 1]" if values.shape == (rows,) else ""
        raise UserError(
            f"{source}: {name} must have shape [{rows}, columns], got {_kind(values)}{hint}"
        )
    numbers = values.float()
    is_wrong = ~torch.isfinite(numbers)
    if bool(is_wrong.any()):
        row, column = is_wrong.nonzero()[0].tolist()
        raise UserError(
            f"{_row_namer(source, ptr)(row)}: {name} column {column} must be a finite number, "
            f"got {values[row, column].item()}"
        )
    return numbers


def _split(arrays: Arrays, graphs: int, source: str) -> Int[Tensor, " graphs"] | None:
    split = arrays.get("split")
    if split is None:
        return None
    if split.shape != (graphs,) or _is_inexact(split):
        raise UserError(f"{source}: split must be whole numbers [{graphs}], got {_kind(split)}")
    is_wrong = (split < 0) | (split >= len(SPLITS))
    if bool(is_wrong.any()):
        graph = int(is_wrong.nonzero()[0])
        raise UserError(
            f"{source}, graph {graph}: split must be 0, 1 or 2, got {int(split[graph])}"
        )
    return split.long()


def _row_namer(source: str, ptr: Int[Tensor, " boundaries"]) -> Where:
    def where(row: int) -> str:
        graph = int(torch.searchsorted(ptr, row, right=True)) - 1
        return f"{source}, graph {graph}, row {row - int(ptr[graph])}"

    return where


def _is_inexact(values: Tensor) -> bool:
    return values.is_floating_point() or values.is_complex() or values.dtype == torch.bool


def _kind(values: Tensor) -> str:
    return f"{list(values.shape)} of {str(values.dtype).removeprefix('torch.')}"


def read_npz(
    path: Path | str,
    rule: LabelRule | None = None,
    level: Level | None = None,
    split_index: int = 0,
) -> CustomData:
    """Read a user's graphs; `docs/custom-data.md` describes the arrays.

    Args:
        path: The file.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the number of labels should not decide.
        split_index: Which split, where masks hold several.
    """
    check_is("rule", rule or LabelRule(), LabelRule)
    arrays = load_arrays(Path(path))
    return assemble(arrays, rule or LabelRule(), level, str(path), split_index)


def load_arrays(path: Path, wanted: Collection[str] = KNOWN) -> Arrays:
    """Read the arrays of a file by their names; those that name columns must name each once."""
    arrays = _load(path, (*wanted, *NAMES))
    tensors = {
        name: _tensor(path, name, values) for name, values in arrays.items() if name in wanted
    }
    for name, of in NAMES.items():
        if name in arrays:
            _check_names(path, name, arrays[name], tensors.get(of))
    return tensors


def array_features(path: Path) -> tuple[str, ...]:
    """Feature columns of a file in their order, as `nodes/NAME`; empty where it names none."""
    arrays = _load(path, tuple(NAMES))
    return tuple(
        f"{table}/{name}"
        for table, names in zip(("nodes", "edges"), NAMES, strict=True)
        for name in (arrays[names].tolist() if names in arrays else ())
    )


def _load(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"{path} must be there, got no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, archive)
        with np.load(path, allow_pickle=False) as file:
            called = {name: PUBLISHED.get(name, name) for name in file.files}
            arrays = {name: file[name] for name, known in called.items() if known in names}
    except UserError:
        raise
    except (zipfile.BadZipFile, zlib.error, SyntaxError, *BROKEN) as error:
        raise UserError(f"{path} must be a whole .npz file without objects: {error}") from error
    known = (*KNOWN, *NAMES, *PUBLISHED)
    if unknown := [name for name in called if name not in known]:
        raise UserError(
            f"{path}: arrays must be among {', '.join(known)}, got {unknown[0]!r} in "
            f"{', '.join(called)}"
        )
    return _renamed(path, called, arrays)


def _renamed(
    path: Path, called: Mapping[str, str], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Give arrays with the names of others the names that ours have."""
    for name, known in called.items():
        others = [other for other in called if called[other] == known and other != name]
        if others and name != known:
            raise UserError(f"{path}: {name} must not stand beside {others[0]}, got both")
    made = {called[name]: found for name, found in arrays.items()}
    if "edges" in arrays:
        made["edge_index"] = _both_ways(path, arrays["edges"])
    for name in OGB_SIZES:
        if name not in arrays:
            continue
        found = arrays[name]
        if found.ndim != 1 or found.dtype.kind not in "iu" or (found < 0).any():
            raise UserError(
                f"{path}: {name} must hold the size of each graph, got "
                f"{list(found.shape)} of {found.dtype}"
            )
        made[called[name]] = np.concatenate([[0], found.cumsum()]).astype(np.int64)
    return made


def check_unpacked(path: Path, archive: zipfile.ZipFile) -> None:
    """Reject an archive that was made to fill the memory."""
    expanded = sum(member.file_size for member in archive.infolist())
    if expanded > max(MOST_EXPANDED, MOST_RATIO * path.stat().st_size):
        raise UserError(
            f"{path} must unpack to {MOST_RATIO} times its size at most, got {expanded:,} "
            "bytes; write it by np.savez, which does not compress"
        )


def _both_ways(path: Path, edges: np.ndarray) -> np.ndarray:
    """Turn a list of edges [edges, 2], each written once, to both directions of each."""
    if edges.ndim != 2 or edges.shape[1] != 2:  # noqa: PLR2004
        raise UserError(f"{path}: edges must have shape [edges, 2], got {list(edges.shape)}")
    index = edges.T
    loops = index[0] == index[1]
    both = np.concatenate([index, index[::-1][:, ~loops]], axis=1)
    # files that have written both already are left as they are
    return index if len(np.unique(both, axis=1).T) == len(np.unique(index, axis=1).T) else both


def _check_names(path: Path, name: str, names: np.ndarray, of: torch.Tensor | None) -> None:
    columns = of.shape[-1] if of is not None and of.dim() else 0
    if names.dtype.kind != "U" or names.shape != (columns,) or len(set(names.tolist())) < columns:
        raise UserError(
            f"{path}: {name} must be {columns} different words, one for each column of "
            f"{NAMES[name]}, got {names.tolist()}"
        )


def _tensor(path: Path, name: str, values: np.ndarray) -> torch.Tensor:
    if values.dtype.kind not in "biuf":
        raise UserError(f"{path}: {name} must hold numbers, got {values.dtype}")
    # torch knows neither foreign byte orders nor most unsigned and extended types
    if values.dtype.kind == "u":
        if values.size and values.max() > np.iinfo(np.int64).max:
            raise UserError(f"{path}: {name} must be below 2**63, got {values.max()}")
        values = values.astype(np.int64)
    elif values.dtype.kind == "f":
        values = values.astype(np.float64)
    else:
        values = values.astype(values.dtype.newbyteorder("="))
    return torch.from_numpy(np.ascontiguousarray(values))

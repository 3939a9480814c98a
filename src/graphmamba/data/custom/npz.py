"""Reader of one `.npz` with the arrays of all graphs."""

import zipfile
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
    CustomGraphs,
    LabelRule,
    Where,
    number_labels,
    numbers_of,
    task_of,
)
from graphmamba.data.custom.split import MASKS, read_masks
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import check_index, check_ptr
from graphmamba.data.tables import LINKS, NODE_SPLIT, GraphColumns, Pairs
from graphmamba.errors import UserError

REQUIRED = ("node_ptr", "edge_ptr", "edge_index")
LINK_ARRAYS = ("pair_ptr", LINKS, "edge_label")
NAMES = {"x_names": ("nodes/", "x"), "edge_attr_names": ("edges/", "edge_attr")}
KNOWN = (*REQUIRED, "x", "edge_attr", "y", "split", *MASKS, *LINK_ARRAYS)
LEVELS: tuple[Level, ...] = ("graph", "node", "link")
Arrays = dict[str, Tensor]
# other names of the arrays
PUBLISHED = {
    "node_features": "x", "features": "x", "node_feat": "x",
    **dict.fromkeys(("node_labels", "label", "labels", "graph_label", "graph_labels"), "y"),
    "edge_features": "edge_attr", "edge_feat": "edge_attr", "edges": "edge_index",
    "train_masks": "train_mask", "val_masks": "val_mask", "test_masks": "test_mask",
    "num_nodes_list": "node_ptr", "num_edges_list": "edge_ptr",
}  # fmt: skip
MOST_NODES = 1 << 28  # of a file without `x`, which may say any number
# bytes that any archive may unpack to, and how many times its size a larger one
MOST_EXPANDED, MOST_RATIO = 1 << 30, 200
# types shared by torch and NumPy
KINDS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


def read_npz(
    path: Path | str,
    rule: LabelRule | None = None,
    level: Level | None = None,
    split_index: int = 0,
) -> CustomData:
    """Read the graphs of an `.npz`; `docs/file-formats.md` describes the arrays.

    Args:
        path: The file.
        rule: What labels are, where their values should not decide.
        level: What is labelled; None infers it from the number of labels.
        split_index: Which split, if masks hold several.
    """
    check_is("rule", rule or LabelRule(), LabelRule)
    arrays, names = _load(Path(path))
    found = assemble(arrays, rule or LabelRule(), level, str(path), split_index)
    return replace(found, feature_names=names)


def read_npz_unlabelled(path: Path) -> CustomGraphs:
    """Read graphs to predict, and pairs to score."""
    arrays, names = _load(path)
    columns = assemble_unlabelled(arrays, str(path))
    if ("pair_ptr" in arrays) != (LINKS in arrays):
        raise UserError(f"{path} must hold both pair_ptr and {LINKS}, or none, got one of them")
    if LINKS in arrays:
        columns.pairs[LINKS] = Pairs(*_pairs(arrays, columns, str(path)), {})
    return CustomGraphs(columns=columns, features=numbers_of(columns), feature_names=names)


def assemble(
    arrays: Arrays, rule: LabelRule, level: Level | None, source: str, split_index: int = 0
) -> CustomData:
    """Check the arrays and make columns and task of them."""
    check_choice("level", level, (None, *LEVELS))
    masks = {name: arrays[name] for name in MASKS if name in arrays}
    columns = assemble_unlabelled(arrays, source)
    pairs = [name for name in LINK_ARRAYS if name in arrays]
    if level is None and "y" in arrays and pairs:
        raise UserError(f"{source}: array y is there and {pairs[0]}; level must say which is meant")
    level = level or _find_level(arrays, columns, source)
    found = CustomGraphs(columns=columns, features=numbers_of(columns))
    if level == "link":
        # without pairs they are the edges of one graph, which are split before it is learned
        return _labelled_pairs(found, arrays, rule, source) if pairs else found.labelled(LINK_TASK)
    node_ptr = columns.node_ptr
    row_ptr = torch.arange(len(node_ptr)) if level == "graph" else node_ptr
    if "y" not in arrays:
        raise UserError(f"{source}: array 'y' must be there for level={level!r}, got none")
    y, rows = arrays["y"], int(row_ptr[-1])
    if y.dim() not in (1, 2) or y.shape[0] != rows or not y.numel():
        raise UserError(f"{source}: y must have shape [{rows}] or [{rows}, labels], got {_kind(y)}")
    labels = number_labels(y, rule, _row_namer(source, row_ptr))
    (columns.graphs if level == "graph" else columns.nodes)["y"] = labels.values
    if masks:
        if level != "node" or columns.split is not None:
            why = f"level={level!r}" if level != "node" else "graphs with a split of their own"
            raise UserError(
                f"{source}: {next(iter(masks))} splits nodes and must be left out for {why}"
            )
        columns.nodes[NODE_SPLIT], splits = read_masks(masks, rows, split_index, source)
        if splits > 1:
            told = f"{source}, split {split_index} of {splits} (data.split_index)"
            columns = replace(columns, source=told)
    return replace(found, columns=columns).labelled(task_of(level, labels), labels.names)


def _labelled_pairs(
    found: CustomGraphs, arrays: Arrays, rule: LabelRule, source: str
) -> CustomData:
    if missing := [name for name in LINK_ARRAYS if name not in arrays]:
        raise UserError(f"{source}: array {missing[0]!r} must be there for level='link', got none")
    if rule != LabelRule():
        raise UserError(f"pairs have one label of 0 and 1, got {rule}")
    masks = [name for name in MASKS if name in arrays]
    if masks:
        raise UserError(f"{source}: {masks[0]} splits nodes and must be left out for level='link'")
    ptr, index = _pairs(arrays, found.columns, source)
    label, wanted = arrays["edge_label"], [index.shape[1]]
    if list(label.shape) != wanted:
        raise UserError(f"{source}: edge_label must have shape {wanted}, got {_kind(label)}")
    labels = number_labels(label, LabelRule("multi-label"), _row_namer(source, ptr))
    found.columns.pairs[LINKS] = Pairs(ptr, index, {"edge_label": labels.values[:, 0]})
    return found.labelled(LINK_TASK)


def assemble_unlabelled(arrays: Arrays, source: str) -> GraphColumns:
    """Check all arrays but the labels; without boundaries there is one graph."""
    index = arrays.get("edge_index")
    if index is not None and index.dim() == 2 and not {"node_ptr", "edge_ptr"} & arrays.keys():  # noqa: PLR2004
        # as many nodes as edges name, where nothing else says it
        listed = [arrays[name] for name in ("x", "y") if name in arrays and arrays[name].dim()]
        rows = len(listed[0]) if listed else 1 + int(index.max()) if index.numel() else 0
        arrays["node_ptr"] = torch.tensor([0, rows])
        arrays["edge_ptr"] = torch.tensor([0, index.shape[1]])
        if LINKS in arrays and "pair_ptr" not in arrays:
            arrays["pair_ptr"] = torch.tensor([0, arrays[LINKS].shape[-1]])
    if missing := [name for name in REQUIRED if name not in arrays]:
        found = ", ".join(f"{name} {_kind(values)}" for name, values in arrays.items())
        raise UserError(
            f"{source}: array {missing[0]!r} must be there beside {', '.join(REQUIRED)} (or "
            f"num_nodes_list and num_edges_list, as in OGB), got {found or 'none'}"
        )
    graphs = len(arrays["node_ptr"]) - 1 if arrays["node_ptr"].dim() else -1
    for name in ("node_ptr", "edge_ptr"):
        check_ptr(f"{source}: {name}", arrays[name], graphs)
    node_ptr, edge_ptr = arrays["node_ptr"], arrays["edge_ptr"]
    if not graphs or bool((node_ptr.diff() == 0).any()):
        graph = int((node_ptr.diff() == 0).int().argmax()) if graphs else 0
        raise UserError(f"{source}, graph {graph}: every graph must have a node, got none")
    nodes, edges = int(node_ptr[-1]), int(edge_ptr[-1])
    check_index(f"{source}: edge_index", arrays["edge_index"], edge_ptr, node_ptr)
    split = arrays.get("split")
    if split is not None:
        numbers = split.unique().tolist()
        if split.shape != (graphs,) or not {*numbers} <= {*SPLITS.values()}:
            raise UserError(
                f"{source}: split must be 0, 1 or 2 for each of {graphs} graphs, "
                f"got {_kind(split)} with {numbers[:6]}"
            )
    if "x" not in arrays and not 0 <= nodes <= MOST_NODES:
        raise UserError(
            f"{source}: node_ptr must end at {MOST_NODES} at most where there is no x, got {nodes}"
        )
    # a model needs some feature; without any, all nodes look alike
    x = _numbers(arrays, "x", nodes, node_ptr, source) if "x" in arrays else torch.ones(nodes, 1)
    attributes = {}
    if "edge_attr" in arrays:
        attributes["edge_attr"] = _numbers(arrays, "edge_attr", edges, edge_ptr, source)
    return GraphColumns(
        node_ptr, edge_ptr, arrays["edge_index"].long(), {"x": x}, attributes,
        split=None if split is None else split.long(), source=source,
    )  # fmt: skip


def _find_level(arrays: Arrays, columns: GraphColumns, source: str) -> Level:
    if "y" not in arrays:
        if not any(name in arrays for name in LINK_ARRAYS):
            raise UserError(
                f"{source}: array 'y' must hold labels of graphs or nodes, or '{LINKS}' "
                f"pairs of them, got {', '.join(arrays.keys() - {*REQUIRED[:2]})}"
            )
        return "link"
    rows = arrays["y"].shape[0] if arrays["y"].dim() else -1
    nodes, graphs = int(columns.node_ptr[-1]), len(columns.node_ptr) - 1
    if rows not in (graphs, nodes):
        raise UserError(
            f"{source}: y must have a row for each of {graphs} graphs or {nodes} nodes, got {rows}"
        )
    return "graph" if rows == graphs else "node"


def _pairs(
    arrays: Arrays, columns: GraphColumns, source: str
) -> tuple[Int[Tensor, " boundaries"], Int[Tensor, "2 pairs"]]:
    """Check the pairs that are labelled, or to be scored: their boundaries and both nodes."""
    ptr, index, graphs = arrays["pair_ptr"], arrays[LINKS], len(columns.node_ptr) - 1
    check_ptr(f"{source}: pair_ptr", ptr, graphs)
    check_index(f"{source}: {LINKS}", index, ptr, columns.node_ptr)
    return ptr, index.long()


def _numbers(
    arrays: Arrays, name: str, rows: int, ptr: Int[Tensor, " boundaries"], source: str
) -> Float[Tensor, "rows columns"]:
    values = arrays[name]
    if values.dim() != 2 or values.shape[0] != rows or not values.shape[1]:  # noqa: PLR2004
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


def _row_namer(source: str, ptr: Int[Tensor, " boundaries"]) -> Where:
    def where(row: int) -> str:
        graph = int(torch.searchsorted(ptr, row, right=True)) - 1
        return f"{source}, graph {graph}, row {row - int(ptr[graph])}"

    return where


def _kind(values: Tensor) -> str:
    return f"{list(values.shape)} of {str(values.dtype).removeprefix('torch.')}"


def _load(path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """Read the arrays of a file by our names, and the names of its feature columns."""
    if not path.is_file():
        raise UserError(f"{path} must be there, got no such file")
    if zipfile.is_zipfile(path):
        check_unpacked(path)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
    except Exception as error:  # cut off, foreign or with objects: NumPy fails in many ways
        raise UserError(f"{path} must be a whole .npz file without objects: {error}") from error
    words = {name: arrays.pop(name) for name in NAMES if name in arrays}
    found: Arrays = {}
    for called, given in arrays.items():
        values, name = given, PUBLISHED.get(called, called)
        if name not in KNOWN:
            known = ", ".join((*KNOWN, *PUBLISHED))
            raise UserError(f"{path}: arrays must be among {known}, got {called!r}")
        if values.dtype.kind not in KINDS:
            raise UserError(f"{path}: {called} must hold numbers, got {values.dtype}")
        if values.dtype == np.uint64 and values.size and int(values.max()) >= 1 << 63:
            raise UserError(f"{path}: {called} must be below 2**63, got {int(values.max())}")
        if name in found:
            raise UserError(f"{path}: {name} must be given once, got {', '.join(arrays)}")
        if called == "edges":
            values = _both_ways(path, values)
        elif called in ("num_nodes_list", "num_edges_list"):
            # sizes, as OGB has them
            values = np.concatenate([[0], values.cumsum()])
        values = np.ascontiguousarray(values.astype(KINDS[values.dtype.kind]))
        found[name] = torch.from_numpy(values)
    return found, _feature_names(path, words, found)


def _feature_names(path: Path, words: dict[str, np.ndarray], found: Arrays) -> tuple[str, ...]:
    features: list[str] = []
    for name, (table, of) in NAMES.items():
        if name in words:
            columns = words[name].tolist()
            width = found[of].shape[-1] if of in found else 0
            if words[name].dtype.kind != "U" or not len(set(columns)) == len(columns) == width:
                raise UserError(
                    f"{path}: {name} must be different words, one for each column of {of}, got "
                    f"{columns}"
                )
            features += [f"{table}{column}" for column in columns]
    return tuple(features)


def check_unpacked(path: Path) -> None:
    """Reject an archive that was made to fill the memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            expanded = sum(member.file_size for member in archive.infolist())
    except (OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} must be a zip that can be read: {error}") from error
    if expanded > max(MOST_EXPANDED, MOST_RATIO * path.stat().st_size):
        raise UserError(
            f"{path} must unpack to {MOST_RATIO} times its size at most, got {expanded:,} bytes: "
            "write it without compression, such as by np.savez"
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

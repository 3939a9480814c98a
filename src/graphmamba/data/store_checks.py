"""What a store refuses: columns whose rows do not add up, nodes that are not there."""

import torch
from torch import Tensor

from graphmamba.data.from_pyg import SPLITS
from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.spans import Span, for_each_span
from graphmamba.data.tables import HIDDEN, Boundaries, is_pairs
from graphmamba.errors import UserError

TAKEN = frozenset({"batch", "edge_index", "graph_key", "num_nodes", "ptr", *HIDDEN})
"""Names that a store or a batch gives to columns of its own."""


def check_graphs(columns: GraphColumns) -> None:
    """Refuse columns that do not make up graphs."""
    node_ptr, edge_ptr = columns.node_ptr, columns.edge_ptr
    check_ptr("node_ptr", node_ptr, node_ptr.shape[0] - 1)
    check_ptr("edge_ptr", edge_ptr, node_ptr.shape[0] - 1)
    check_index("edge_index", columns.edge_index, edge_ptr, node_ptr)
    kinds = {"nodes": node_ptr, "edges": edge_ptr, "graphs": torch.arange(node_ptr.shape[0])}
    for kind, ptr in kinds.items():
        for name, values in getattr(columns, kind).items():
            check_column(name, values, int(ptr[-1]), kind)
    names = [*columns.nodes, *columns.edges, *columns.graphs]
    for index, each in columns.pairs.items():
        check_ptr(f"pairs of {index}: ptr", each.ptr, node_ptr.shape[0] - 1)
        check_index(index, each.index, each.ptr, node_ptr)
        for name, values in each.columns.items():
            check_column(name, values, int(each.ptr[-1]), "pairs")
        names += [index, *each.columns]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"a column must belong to nodes, edges or graphs, got '{name}' twice")
    check_split(columns.split, node_ptr.shape[0] - 1)


def check_ptr(argument: str, ptr: Tensor, graphs: int) -> None:
    """Refuse boundaries that are not one more than graphs, or fall."""
    if ptr.dtype != torch.int64 or ptr.shape != (graphs + 1,) or graphs < 0:
        raise UserError(
            f"{argument} must hold one int64 more than the {max(graphs, 0)} graphs, "
            f"got {ptr.dtype} of shape {list(ptr.shape)}"
        )
    if int(ptr[0]) != 0 or bool((ptr.diff() < 0).any()):
        raise UserError(f"{argument} must start at 0 and never fall, got {ptr.tolist()[:8]}...")


def check_column(name: str, values: Tensor, rows: int, kind: str) -> None:
    """Refuse a column that has another number of rows, or a name that cannot be an attribute."""
    _check_name(name)
    if is_pairs(name):
        raise UserError(f"'{name}' has `index` in its name and must be among the pairs")
    if values.dim() == 0 or values.shape[0] != rows:
        raise UserError(f"{name} must have {rows} rows ({kind}), got shape {list(values.shape)}")


def check_index(name: str, pairs: Tensor, ptr: Boundaries, node_ptr: Boundaries) -> None:
    """Refuse pairs with nodes that their graph does not have."""
    if name != "edge_index":
        _check_name(name)
    if not is_pairs(name):
        raise UserError(f"the name of pairs must have `index` in it, got '{name}'")
    if pairs.shape != (2, int(ptr[-1])) or pairs.is_floating_point():
        raise UserError(
            f"{name} must hold integers of shape [2, {int(ptr[-1])}], "
            f"got {pairs.dtype} of shape {list(pairs.shape)}"
        )
    counts = node_ptr.diff()

    def check(span: Span) -> None:
        some, size = pairs[:, span.rows], counts[span.graphs][span.owner]
        wrong = (some < 0) | (some >= size)
        if bool(wrong.any()):
            place = int(wrong.any(dim=0).nonzero()[0])
            graph = span.graphs.start + int(span.owner[place])
            raise UserError(
                f"{name} must hold nodes 0 to {int(size[place]) - 1} in graph {graph}, "
                f"got {some[:, place].tolist()}"
            )

    for_each_span(ptr, check, "Checking edges")


def check_split(split: Tensor | None, graphs: int) -> None:
    """Refuse parts other than 0, 1 and 2, or not one for each graph."""
    if split is None:
        return
    if split.shape != (graphs,) or split.is_floating_point():
        raise UserError(
            f"split must hold one integer for each of {graphs} graphs, "
            f"got {split.dtype} of shape {list(split.shape)}"
        )
    if graphs and not 0 <= int(split.min()) <= int(split.max()) < len(SPLITS):
        raise UserError(f"split must hold 0, 1 or 2, got {split.unique().tolist()[:8]}")


def _check_name(name: str) -> None:
    if not name.isidentifier() or name in TAKEN:
        raise UserError(
            f"a column's name must be an identifier and none of {sorted(TAKEN)}, got '{name}'"
        )

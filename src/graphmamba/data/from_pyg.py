"""PyG graphs and batches as `GraphColumns`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.data.data import BaseData

from graphmamba.data.splits import Split, split_numbers
from graphmamba.data.tables import GraphColumns, Pairs, boundaries, is_pairs
from graphmamba.errors import UserError

# PyG graphs: a list, dataset or `DataLoader` of graphs or batches; a `Batch`; a single graph
Graphs: TypeAlias = Iterable[Data] | Batch | Data
REMEDY = "give the graphs, or the batch as Batch.from_data_list made it"


def take_apart(graphs: Graphs) -> Iterator[Data]:
    """Yield the graphs of a list, a `DataLoader` or a `Batch` one by one.

    Otherwise a batch would be treated as one large graph.
    """
    for place, graph in enumerate([graphs] if isinstance(graphs, BaseData) else graphs):
        is_mixed = isinstance(graph, Batch) and "HeteroData" in str(graph)
        if isinstance(graph, HeteroData) or is_mixed:
            raise UserError(
                f"graphs[{place}] must have one kind of nodes and of edges, got a heterogeneous "
                "graph; to_homogeneous() of PyG makes one"
            )
        if isinstance(graph, TemporalData):
            raise UserError(f"graphs[{place}] must stay as it is, got a temporal one")
        if isinstance(graph, Batch):
            yield from _graphs_in(graph, place)
            continue
        # several graphs that are not even called a batch
        batch = graph.get("batch") if isinstance(graph, Data) else None
        if isinstance(batch, Tensor) and bool((batch != 0).any()):
            raise UserError(
                f"graphs[{place}] must be one graph, got one whose column batch tells several "
                f"apart; {REMEDY}"
            )
        yield graph


def _graphs_in(batch: Batch, place: int) -> list[Data]:
    try:
        graphs = batch.to_data_list()
        # PyG cuts where it joined: edges put in since would be lost without a word
        is_whole = sum(graph.num_edges for graph in graphs) == batch.num_edges
    except (RuntimeError, AttributeError, LookupError, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise UserError(
            f"graphs[{place}] must be a Batch that PyG can take apart, got one made or changed by "
            f"hand; {REMEDY}"
        )
    return graphs


def columns_of(
    graphs: Graphs, split: Split | None = None, exclude: Collection[str] = ()
) -> GraphColumns:
    """Concatenate graphs; all need the same columns.

    A column has one row per node, edge, graph or further pair; which one is inferred from all
    graphs together, since one graph may have as many nodes as edges. If all do, the name decides:
    `edge_...` belongs to edges.
    """
    each = list(take_apart(graphs))
    nodes = torch.tensor([int(graph.num_nodes or 0) for graph in each], dtype=torch.int64)
    edge_parts = [_pairs(graph.edge_index, number) for number, graph in enumerate(each)]
    edges = torch.tensor([part.shape[1] for part in edge_parts], dtype=torch.int64)
    counts = {"nodes": nodes, "edges": edges, "graphs": torch.ones_like(nodes)}
    kinds: dict[str, dict[str, Tensor]] = {kind: {} for kind in counts}
    pairs: dict[str, Pairs] = {}
    # Pairs first: the labels of pairs have as many rows as they.
    for name in sorted(_names(each, exclude), key=is_pairs, reverse=True):
        parts = [_part(graph, name, number) for number, graph in enumerate(each)]
        values = _join(name, parts)
        rows = torch.tensor([part.shape[int(is_pairs(name))] for part in parts])
        if is_pairs(name):
            pairs[name] = Pairs(boundaries(rows), values)
            counts[name], kinds[name] = rows, pairs[name].columns
        else:
            kinds[_kind(name, rows, counts)][name] = values
    return GraphColumns(
        node_ptr=boundaries(nodes),
        edge_ptr=boundaries(edges),
        edge_index=_join("edge_index", edge_parts),
        nodes=kinds["nodes"],
        edges=kinds["edges"],
        graphs=kinds["graphs"],
        pairs=pairs,
        split=split_numbers(split, len(each)),
        source="PyG graphs",
    )


def _kind(name: str, rows: Int[Tensor, " graphs"], counts: Mapping[str, Tensor]) -> str:
    asked = [f"{name}_index", *(["edges"] if name.startswith("edge_") else []), *counts]
    kind = next((each for each in asked if each in counts and counts[each].equal(rows)), None)
    if kind is None:
        raise UserError(
            f"{name} must have a row for each of the {', '.join(counts)}, or be left out by "
            f"`exclude`; got {rows.tolist()[:8]} rows in the first graphs"
        )
    return kind


def _names(graphs: Sequence[Data], exclude: Collection[str]) -> list[str]:
    """Columns of the first graph; all others must have the same."""
    left_out = {"edge_index", "num_nodes", *exclude}
    names = [[name for name in graph.keys() if name not in left_out] for graph in graphs]  # noqa: SIM118
    for number, found in enumerate(names):
        if odd := set(found) ^ set(names[0]):
            raise UserError(
                f"all graphs must have the same columns, got {sorted(odd)} in only one of "
                f"graphs 0 and {number}"
            )
    return names[0] if names else []


def _part(graph: Data, name: str, number: int) -> Tensor:
    """One graph's rows of a column; a number by itself is a row."""
    value = graph[name]
    if isinstance(value, bool | int | float):
        value = torch.tensor(value)
    if not isinstance(value, Tensor):
        raise UserError(
            f"graphs[{number}].{name} must be a tensor or left out by `exclude`, "
            f"got {type(value).__name__}"
        )
    if is_pairs(name):
        return _pairs(value, number, name)
    return value.cpu().reshape(1) if value.dim() == 0 else value.cpu()


def _pairs(value: Tensor | None, number: int, name: str = "edge_index") -> Int[Tensor, "2 pairs"]:
    if value is None:
        return torch.empty(2, 0, dtype=torch.int64)
    if value.dim() != 2 or value.shape[0] != 2 or value.is_floating_point():  # noqa: PLR2004
        raise UserError(
            f"graphs[{number}].{name} must hold integers of shape [2, any], "
            f"got {value.dtype} of shape {list(value.shape)}"
        )
    return value.cpu()


def _join(name: str, parts: Sequence[Tensor]) -> Tensor:
    """Put parts end to end; they must agree in all but their rows."""
    for number, part in enumerate(parts):
        is_alike = part.dtype == parts[0].dtype and part.shape[1:] == parts[0].shape[1:]
        if not is_alike and not is_pairs(name):
            raise UserError(
                f"graphs[{number}].{name} must be like that of graph 0, {parts[0].dtype} of shape "
                f"{list(parts[0].shape)}, got {part.dtype} of shape {list(part.shape)}"
            )
    if not parts:
        return torch.empty(2, 0, dtype=torch.int64)
    return torch.cat(list(parts), dim=int(is_pairs(name)))

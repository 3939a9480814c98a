"""Graphs of PyG, by themselves or in batches -> one graph after another."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.errors import UserError

Graphs: TypeAlias = Iterable[Data] | Batch
"""Graphs of PyG and batches of them, in a list, a `DataLoader` or a data set; or one batch."""
UNDIVIDED = ("batch", "ptr")
"""How the names of columns end that tell the graphs of a batch apart, and belong to none."""
REMEDY = "give the graphs, or the batch as Batch.from_data_list made it"


def take_apart(graphs: Graphs) -> Iterator[Data]:
    """Give the graphs of a list, a `DataLoader` or a `Batch` one by one.

    A batch looks like one large graph to whoever does not ask, and would be learned as one.
    """
    if isinstance(graphs, Data) and not isinstance(graphs, Batch):
        raise UserError("graphs must be a list of graphs, got a single one: give [graph]")
    for place, graph in enumerate([graphs] if isinstance(graphs, Batch) else graphs):
        if isinstance(graph, Batch):
            yield from _graphs_in(graph, place)
        else:
            _check_single(graph, place)
            yield graph


def _graphs_in(batch: Batch, place: int) -> list[Data]:
    try:
        graphs = batch.to_data_list()
    except (RuntimeError, AttributeError, LookupError, TypeError, ValueError) as mistake:
        raise UserError(
            f"graphs[{place}] must be a Batch that PyG can take apart, got one made or changed by "
            f"hand; {REMEDY}"
        ) from mistake
    # PyG cuts where it joined: what was put in or made longer since would be lost without a word
    for name, values in batch.to_dict().items():
        is_divided = isinstance(values, Tensor) and not name.endswith(UNDIVIDED)
        if not is_divided or values.layout != torch.strided:
            continue
        found = sum(graph[name].numel() for graph in graphs if name in graph)
        if found != values.numel():
            raise UserError(
                f"graphs[{place}] must be a Batch that PyG can take apart, got one whose {name} "
                f"was changed since it was made; {REMEDY}"
            )
    return graphs


def _check_single(graph: object, place: int) -> None:
    """Refuse several graphs that are not even called a batch."""
    batch = graph.get("batch") if isinstance(graph, Data) else None
    if isinstance(batch, Tensor) and bool((batch != 0).any()):
        raise UserError(
            f"graphs[{place}] must be one graph, got one whose column batch tells several apart; "
            f"{REMEDY}"
        )

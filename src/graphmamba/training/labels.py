"""A batch of a store with its labels: where only right pairs are known, wrong ones are drawn."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Batch

from graphmamba.data.catalog import Level
from graphmamba.data.columns import column, topology_of
from graphmamba.data.datasets.pcqm_contact import with_negatives
from graphmamba.data.sampler import Ids
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import LINKS, boundaries
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits
from graphmamba.training.losses import Target, target_of

TABLES: dict[Level, str] = {"graph": "graphs", "node": "nodes", "link": PAIRS + LINKS}
"""Where a store has the labels of each level."""


Counter = int | Int[Tensor, ""]


def labelled_batch(
    store: GraphStore, ids: Ids, level: Level, counters: Sequence[Counter]
) -> tuple[Batch, Target]:
    """Graphs of a store, and what is right about them.

    Args:
        store: All graphs.
        ids: Those of the batch.
        level: What is labelled.
        counters: What wrong pairs are drawn from, where the store knows right ones only.
    """
    graphs = store.batch(ids, by_source=True)
    return graphs, labels_of(graphs, level, counters)


def labels_of(graphs: Batch, level: Level, counters: Sequence[Counter]) -> Target:
    """Read off what is right about the graphs of a batch; wrong pairs are added to the batch."""
    if level == "link" and column(graphs, "edge_label") is None:
        stream = torch.zeros((), dtype=torch.int64, device=graphs.ptr.device)
        for counter in counters:
            stream = draw_bits(stream, counter)
        real = column(graphs, "num_real_nodes")
        pairs, label = with_negatives(graphs[LINKS], graphs.ptr, stream, real)
        graphs[LINKS], graphs.edge_label = pairs, label
    topology = topology_of(graphs)
    return target_of(graphs, level, topology.batch, topology.num_graphs)


def labels_per_graph(store: GraphStore, level: Level) -> Ids:
    """Labels of each graph, on the CPU: what losses divide by, and so what batches are weighed by.

    A class is one label, a row of targets as many as are known. Wrong pairs that are drawn do not
    count: each right one has as many, but for a few in graphs that have hardly any.
    """
    table, name = store.tables[TABLES[level]], "edge_label" if level == "link" else "y"
    rows = torch.from_numpy(table.ptr).diff()
    if name not in table.columns:
        if level == "link":
            return rows
        raise UserError(f"graphs must have labels '{name}' for each {level}, got none")
    kept = table.columns[name]
    is_known = ~kept.values.isnan() if kept.values.is_floating_point() else kept.values >= 0
    counts = is_known.long() if is_known.dim() == 1 else is_known.flatten(1).sum(dim=1)
    if kept.is_constant:
        return counts.cpu() * rows
    # On the device but for the result: rows are many, graphs are few.
    ends = boundaries(counts)
    return ends[torch.from_numpy(table.ptr).to(ends.device)].diff().cpu()

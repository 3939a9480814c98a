"""A batch of a store with its labels: where only right pairs are known, wrong ones are drawn."""

from collections.abc import Sequence

import torch
from torch_geometric.data import Batch

from graphmamba.data.catalog import Level
from graphmamba.data.columns import column, topology_of
from graphmamba.data.contacts import with_negatives
from graphmamba.data.random_bits import draw_bits
from graphmamba.data.sampler import Ids
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.task.target import Target, target_of

LABELLED = "edge_label_index"


def labelled_batch(
    store: GraphStore, ids: Ids, level: Level, counters: Sequence[int]
) -> tuple[Batch, Target]:
    """Graphs of a store, and what is right about them.

    Args:
        store: All graphs.
        ids: Those of the batch.
        level: What is labelled.
        counters: What wrong pairs are drawn from, where the store knows right ones only.
    """
    graphs = store.batch(ids, by_source=True)
    if level == "link" and column(graphs, "edge_label") is None:
        generator = torch.Generator(store.device).manual_seed(_stream_of(counters))
        pairs, label = with_negatives(graphs[LABELLED], graphs.ptr, generator)
        graphs[LABELLED], graphs.edge_label = pairs, label
    topology = topology_of(graphs)
    return graphs, target_of(graphs, level, topology.batch, topology.num_graphs)


def _stream_of(counters: Sequence[int]) -> int:
    """Seed of one draw among many: the same counters, the same draw."""
    stream = torch.tensor(0)
    for counter in counters:
        stream = draw_bits(stream, counter)
    return int(stream)


def rows_per_graph(store: GraphStore, level: Level) -> Ids:
    """Labelled rows of each graph, on the CPU: what batches are weighed by."""
    if level == "graph":
        return torch.ones(len(store), dtype=torch.int64)
    table = store.tables["nodes" if level == "node" else PAIRS + LABELLED]
    return torch.from_numpy(table.ptr).diff()

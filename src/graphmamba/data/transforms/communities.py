"""Louvain communities: the same as those of networkx, many times faster."""

from random import Random

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.parallel import run_all
from graphmamba.data.tables import GraphColumns

LEAST_GAIN = 1e-7  # least gain of modularity for another level, as in networkx


def louvain_communities(
    edge_index: Int[Tensor, "2 edges"], nodes: int, seed: int = 0
) -> Int[Tensor, " nodes"]:
    """Community of each node of the undirected graph by Louvain's method, numbered from 0.

    Nodes move in random order to the neighbouring community with the largest gain of modularity,
    until none gains; then communities become nodes, and so on. Directions and repeats of edges do
    not matter.
    """
    from graphmamba.data.transforms.communities_kernels import (
        join,
        modularity,
        move_nodes,
        pairs_of,
    )

    found = np.arange(nodes)
    if not edge_index.numel():
        return torch.from_numpy(found)
    random = Random(seed)
    # pairs are numbered by products of nodes, which 32 bits may not hold
    source, target = (np.ascontiguousarray(ends, np.int64) for ends in edge_index.cpu().numpy())
    begin, other, weight, loop = join(source, target, np.ones(len(source)), nodes)
    once = begin, other, np.ones_like(weight), (loop > 0).astype(float)
    # neighbours stand as in a networkx graph that was copied edge by edge: lower ones first
    graph = join(*pairs_of(*once, np.arange(nodes)), nodes)
    _, _, weight, loop = graph
    size = weight.sum() / 2 + loop.sum()
    score = modularity(*graph, found)
    while True:
        order = list(range(len(graph[0]) - 1))
        random.shuffle(order)
        community = move_nodes(*graph, np.array(order), size)
        found = community[found]
        before, score = score, modularity(*graph, community)
        if score - before <= LEAST_GAIN:
            return torch.from_numpy(found)
        graph = join(*pairs_of(*graph, community), int(community.max()) + 1)


def all_communities(columns: GraphColumns) -> Int[Tensor, " nodes"]:
    """`louvain_communities` of every graph, end to end."""
    edges = columns.edge_index.split(columns.edge_ptr.diff().tolist(), dim=1)
    counts = columns.node_ptr.diff().tolist()

    def work(graph: int) -> Int[Tensor, " nodes"]:
        return louvain_communities(edges[graph], counts[graph])

    found = run_all(work, range(len(edges)), "Communities")
    return torch.cat([torch.empty(0, dtype=torch.int64), *found])

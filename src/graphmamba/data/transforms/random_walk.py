"""Return probabilities of random walks, of one graph and of a whole set."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import Block, blocks, edges_of, run_all
from graphmamba.data.tables import GraphColumns

WALK_COLUMNS = 512
"""Starts of a walk followed at once in one graph."""
WALK_ENTRIES = 1 << 19
"""Probabilities of one block: 4 MiB, which stay in the cache between two steps."""


def return_probabilities(
    edge_index: Int[Tensor, "2 edges"], nodes: int, walk_length: int
) -> Float[Tensor, "nodes steps"]:
    """Probability that a random walk along the edges is back at its start after 1, 2, ... steps.

    A walk that reaches a node without outgoing edges ends there and never returns.
    """
    returns = torch.empty(nodes, walk_length)
    for starts in torch.arange(nodes).split(WALK_COLUMNS):
        returns[starts] = walk_back(
            edge_index, nodes, starts, torch.arange(len(starts)), walk_length
        )
    return returns


def walk_back(
    edge_index: Int[Tensor, "2 edges"],
    nodes: int,
    starts: Int[Tensor, " starts"],
    columns: Int[Tensor, " starts"],
    walk_length: int,
) -> Float[Tensor, "starts steps"]:
    """Probabilities to be back at some starts, by sparse products.

    Args:
        edge_index: Along which walks go.
        nodes: How many there are.
        starts: Nodes that walks begin at.
        columns: Where each of them is followed; those between which no walk leads may share one.
        walk_length: Steps of the longest walk.
    """
    from scipy.sparse import csr_matrix

    source, target = edge_index
    chance = torch.bincount(source, minlength=nodes).clamp_min(1).double().reciprocal()
    entries = (chance[source].numpy(), (source.numpy(), target.numpy()))
    transition = csr_matrix(entries, shape=(nodes, nodes))
    # chances to reach the start of a column from every node
    width = int(columns.max()) + 1 if len(columns) else 0
    power = torch.zeros(nodes, width, dtype=torch.float64)
    power[starts, columns] = 1.0
    reached, returns = power.numpy(), torch.empty(len(starts), walk_length)
    for step in range(walk_length):
        reached = transition @ reached
        returns[:, step] = torch.from_numpy(reached[starts.numpy(), columns.numpy()]).float()
    return returns


def all_return_probabilities(
    columns: GraphColumns, walk_length: int
) -> Float[Tensor, "nodes steps"]:
    """`return_probabilities` of every graph, by sparse products."""
    returns = torch.zeros(int(columns.node_ptr[-1]), walk_length)

    def walk(block: Block) -> None:
        edges = edges_of(columns, block)
        for first in range(0, block.size, WALK_COLUMNS):
            is_start = (block.local >= first) & (block.local < first + WALK_COLUMNS)
            rows = block.nodes[is_start]
            returns[rows] = _walk(block, edges, is_start.nonzero().flatten(), first, walk_length)

    run_all(walk, list(blocks(columns, WALK_ENTRIES, width=WALK_COLUMNS)), "Random walks")
    return returns


def _walk(
    block: Block,
    edges: Int[Tensor, "3 edges"],
    starts: Int[Tensor, " starts"],
    first: int,
    walk_length: int,
) -> Float[Tensor, "starts steps"]:
    """Probabilities to be back at `starts`, rows of the block with columns from `first` on.

    Graphs of a block share the columns: no walk leads from one graph into another.
    """
    heads = torch.searchsorted(block.place, torch.arange(len(block.graphs)))
    joined = edges[1:] + heads[edges[0]]
    return walk_back(joined, len(block.nodes), starts, block.local[starts] - first, walk_length)

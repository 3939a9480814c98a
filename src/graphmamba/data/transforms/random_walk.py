"""Return probabilities of random walks."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.parallel import Block, blocks, edges_of, run_all
from graphmamba.data.tables import GraphColumns

WALK_COLUMNS = 512  # start nodes that are computed at once in one graph
WALK_ENTRIES = 1 << 19  # entries of one block: 4 MiB, which fit into the cache
EXACT_UP_TO = 20_000  # largest graph with exact probabilities, whose cost is nodes times edges
PROBES, WIDTH = 256, 32
"""Random vectors of the estimate in larger graphs, and how many are computed at once."""


def return_probabilities(columns: GraphColumns, walk_length: int) -> Float[Tensor, "nodes steps"]:
    """Probability that a random walk along the edges is back at its start after 1, 2, ... steps.

    A walk that reaches a node without outgoing edges ends there and never returns. In a graph of
    more than 20,000 nodes it is estimated, see `estimated_return_probabilities`.
    """
    returns = torch.zeros(int(columns.node_ptr[-1]), walk_length)

    def walk(block: Block) -> None:
        edges = edges_of(columns, block)
        # graphs of a block share the columns: no walk leads from one graph into another
        heads = torch.searchsorted(block.place, torch.arange(len(block.graphs)))
        edge_index, nodes = edges[1:] + heads[edges[0]], len(block.nodes)
        for first in range(0, block.size, WALK_COLUMNS):
            is_start = (block.local >= first) & (block.local < first + WALK_COLUMNS)
            starts = is_start.nonzero().flatten()
            followed = block.local[starts] - first
            returns[block.nodes[starts]] = _walk_back(
                edge_index, nodes, starts, followed, walk_length
            )

    small, large = blocks(columns, WALK_ENTRIES, largest=EXACT_UP_TO, width=WALK_COLUMNS)
    run_all(walk, small, "Random walks")
    for block in large:
        edge_index = edges_of(columns, block)[1:]
        returns[block.nodes] = estimated_return_probabilities(edge_index, block.size, walk_length)
    return returns


def estimated_return_probabilities(
    edge_index: Int[Tensor, "2 edges"], nodes: int, walk_length: int
) -> Float[Tensor, "nodes steps"]:
    """`return_probabilities` in time and memory linear in the edges, by random signs z.

    diag(P^(a + b)) = E[(P^a z) * ((P^T)^b z)], with a and b as equal as can be, so that the
    standard error is |row i of P^a| |column i of P^b| / sqrt(probes): in an undirected graph some
    sqrt(2 / probes) of the probability itself. The first two steps are exact. After Hutchinson
    (1989), https://doi.org/10.1080/03610918908812806. Signs depend on `nodes` only.
    """
    from scipy.sparse import csr_matrix

    source, target = (ends.numpy() for ends in edge_index)
    chance = 1.0 / np.maximum(np.bincount(source, minlength=nodes), 1)
    forward = csr_matrix((chance[source], (source, target)), shape=(nodes, nodes))
    backward = forward.T.tocsr()
    returns, signs = np.zeros((nodes, walk_length)), np.random.default_rng(nodes)
    for first in range(0, PROBES, WIDTH):
        width = min(WIDTH, PROBES - first)
        there = back = signs.choice([-1.0, 1.0], size=(nodes, width))
        for step in range(walk_length):
            if step % 2:
                back = backward @ back
            else:
                there = forward @ there
            returns[:, step] += (there * back).sum(axis=1)
    returns = np.clip(returns / PROBES, 0.0, 1.0)
    exact = [forward.diagonal(), forward.multiply(backward).sum(axis=1).A1]
    for step, values in enumerate(exact[:walk_length]):
        returns[:, step] = values
    return torch.from_numpy(returns).float()


def _walk_back(
    edge_index: Int[Tensor, "2 edges"],
    nodes: int,
    starts: Int[Tensor, " starts"],
    columns: Int[Tensor, " starts"],
    walk_length: int,
) -> Float[Tensor, "starts steps"]:
    """Return probabilities of some start nodes, by sparse products.

    One column per start node; nodes in different components may share one.
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

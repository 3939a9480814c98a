"""Pre-computed columns of a whole set: those that a model asks for, each by its fast way."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.blocks import Block, blocks, edges_of, global_edges, node_counts
from graphmamba.data.centralities import eigenvector_centralities
from graphmamba.data.expander import expander_edges, expander_seeds
from graphmamba.data.louvain import louvain_communities
from graphmamba.data.parallel import run_all
from graphmamba.data.positional import (
    WALK_COLUMNS,
    Precompute,
    local_degree_profile,
    walk_back,
)
from graphmamba.data.spectrum import laplacian_spectra
from graphmamba.data.tables import GraphColumns, Pairs, boundaries

WALK_ENTRIES = 1 << 19
"""Probabilities of one block: 4 MiB, which stay in the cache between two steps."""


def add_precomputed(
    columns: GraphColumns, asked: Precompute, device: torch.device | str = "cpu"
) -> GraphColumns:
    """Return the set with the columns that `asked` names, the same as `positional.add_columns`.

    Args:
        columns: The set, on the CPU.
        asked: What a model reads; nothing else is computed.
        device: Where the eigenvectors are computed.
    """
    made = precomputed(columns, asked, device)
    return replace(
        columns, nodes={**columns.nodes, **made.nodes}, pairs={**columns.pairs, **made.pairs}
    )


def precomputed(
    columns: GraphColumns, asked: Precompute, device: torch.device | str = "cpu"
) -> GraphColumns:
    """The columns that `asked` names by themselves: the same nodes, no edges, nothing else."""
    nodes: dict[str, Tensor] = {}
    pairs: dict[str, Pairs] = {}
    if asked.frequencies:
        vectors, values = laplacian_spectra(columns, asked.frequencies, device)
        nodes |= {"laplacian_vectors": vectors, "laplacian_values": values}
    if asked.walks:
        nodes["random_walk"] = all_return_probabilities(columns, asked.walks)
    if asked.has_centrality:
        nodes["centrality"] = eigenvector_centralities(columns, device)
    if asked.has_clusters:
        nodes["cluster"] = all_communities(columns)
    if asked.degree_profile != "none":
        nodes["degree_profile"] = degree_profiles(columns, asked.degree_profile == "unbiased")
    if asked.expander_degree:
        pairs["expander_index"] = all_expanders(columns, asked.expander_degree, asked.seed)
    no_edges = torch.zeros_like(columns.edge_ptr)
    return GraphColumns(
        columns.node_ptr, no_edges, columns.edge_index[:, :0], nodes, pairs=pairs,
        source=f"computed from graphs {columns.source}".rstrip(),
    )  # fmt: skip


def degree_profiles(columns: GraphColumns, is_unbiased: bool = True) -> Float[Tensor, "nodes 5"]:
    """`positional.local_degree_profile` of every graph: end to end they are one large graph."""
    nodes = int(columns.node_ptr[-1])
    return local_degree_profile(global_edges(columns), nodes, is_unbiased)


def all_return_probabilities(columns: GraphColumns, walks: int) -> Float[Tensor, "nodes walks"]:
    """`positional.return_probabilities` of every graph, by sparse products."""
    returns = torch.zeros(int(columns.node_ptr[-1]), walks)

    def walk(block: Block) -> None:
        edges = edges_of(columns, block)
        for first in range(0, block.size, WALK_COLUMNS):
            is_start = (block.local >= first) & (block.local < first + WALK_COLUMNS)
            rows = block.nodes[is_start]
            returns[rows] = _walk(block, edges, is_start.nonzero().flatten(), first, walks)

    run_all(walk, list(blocks(columns, WALK_ENTRIES, width=WALK_COLUMNS)), "Random walks")
    return returns


def _walk(
    block: Block,
    edges: Int[Tensor, "3 edges"],
    starts: Int[Tensor, " starts"],
    first: int,
    walks: int,
) -> Float[Tensor, "starts walks"]:
    """Probabilities to be back at `starts`, rows of the block with columns from `first` on.

    Graphs of a block share the columns: no walk leads from one graph into another.
    """
    heads = torch.searchsorted(block.place, torch.arange(len(block.graphs)))
    joined = edges[1:] + heads[edges[0]]
    return walk_back(joined, len(block.nodes), starts, block.local[starts] - first, walks)


def all_communities(columns: GraphColumns) -> Int[Tensor, " nodes"]:
    """`louvain.louvain_communities` of every graph, laid end to end."""
    edges = columns.edge_index.split(columns.edge_ptr.diff().tolist(), dim=1)
    found = torch.empty(int(columns.node_ptr[-1]), dtype=torch.int64)
    parts = found.split(node_counts(columns).tolist())

    def work(graph: int) -> None:
        parts[graph][:] = louvain_communities(edges[graph], len(parts[graph]))

    run_all(work, range(len(edges)), "Communities")
    return found


def all_expanders(columns: GraphColumns, degree: int, seed: int = 0) -> Pairs:
    """`expander.expander_edges` of every graph; a graph's draw depends on its number alone."""
    counts = node_counts(columns)
    seeds = expander_seeds(seed, len(counts))
    found = [torch.empty(2, 0, dtype=torch.int64)] * len(seeds)

    def draw(graph: int) -> None:
        generator = torch.Generator().manual_seed(seeds[graph])
        found[graph] = expander_edges(int(counts[graph]), degree, generator)

    run_all(draw, range(len(seeds)), "Expander graphs")
    index = torch.cat([torch.empty(2, 0, dtype=torch.int64), *found], dim=1)
    widths = torch.tensor([edges.shape[1] for edges in found], dtype=torch.int64)
    return Pairs(boundaries(widths), index)

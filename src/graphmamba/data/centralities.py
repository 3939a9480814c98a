"""Eigenvector centrality of a whole set: dense and batched by size, sparse for large graphs."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.data.blocks import Block, blocks, edges_of, node_counts, simple_columns
from graphmamba.data.leading_vector import DEGENERATE
from graphmamba.data.node_scores import eigenvector_centrality
from graphmamba.data.parallel import run_all
from graphmamba.data.spectrum import DENSE_UP_TO, ENTRIES_CPU, ENTRIES_GPU
from graphmamba.data.tables import GraphColumns


def eigenvector_centralities(
    columns: GraphColumns, device: torch.device | str = "cpu"
) -> Float[Tensor, " nodes"]:
    """`node_scores.eigenvector_centrality` of every graph, laid end to end."""
    simple = simple_columns(columns, has_loops=True)
    scores = torch.empty(int(columns.node_ptr[-1]))
    device = torch.device(device)
    entries = ENTRIES_CPU if device.type == "cpu" else ENTRIES_GPU

    def solve(block: Block) -> None:
        place, source, target = edges_of(simple, block).to(device)
        size, graphs = block.size, len(block.graphs)
        adjacency = torch.zeros(graphs, size, size, dtype=torch.float64, device=device)
        adjacency[place, source, target] = 1.0
        scores[block.nodes] = _leading(adjacency).float().cpu().flatten()

    def solve_large(graph: int) -> None:
        start, end = simple.node_ptr[graph : graph + 2].tolist()
        first, last = simple.edge_ptr[graph : graph + 2].tolist()
        edges = simple.edge_index[:, first:last]
        scores[start:end] = eigenvector_centrality(edges, end - start)

    large = (node_counts(columns) > DENSE_UP_TO).nonzero().flatten().tolist()
    run_all(solve, list(blocks(simple, entries, largest=DENSE_UP_TO)), "Centrality", device)
    run_all(solve_large, large, "Centrality, sparse")
    return scores


def _leading(adjacency: Float[Tensor, "graphs size size"]) -> Float[Tensor, "graphs size"]:
    """What the leading eigenvectors contain of the vector of ones, of length 1."""
    values, vectors = torch.linalg.eigh(adjacency)
    is_leading = values >= values[:, -1:] - DEGENERATE
    weight = vectors.sum(dim=1) * is_leading
    found = (vectors @ weight[:, :, None]).squeeze(2).abs()
    return torch.nn.functional.normalize(found, dim=1)

"""Laplacian spectra of a whole set: dense and batched by size, sparse where graphs are large."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.blocks import Block, blocks, edges_of, node_counts, simple_columns
from graphmamba.data.parallel import run_all
from graphmamba.data.sparse_spectrum import smallest_eigenpairs
from graphmamba.data.tables import GraphColumns

DENSE_UP_TO = 512
"""Nodes up to which all eigenvectors at once cost less than the few asked for, one by one."""
ENTRIES_CPU, ENTRIES_GPU = 1 << 20, 1 << 27
"""Matrix entries in one call: what stays in the cache of a core, what a GPU needs to be busy."""


def laplacian_spectra(
    columns: GraphColumns, frequencies: int, device: torch.device | str = "cpu"
) -> tuple[Float[Tensor, "nodes frequencies"], Float[Tensor, "nodes frequencies"]]:
    """`positional.laplacian_spectrum` of every graph, the columns laid end to end.

    Computed in double precision: single precision is off by about 1e-6, which is as much as the
    smallest eigenvalues of a long molecule differ. The smallest graphs come first, so that the
    work is cut alike, and gives the same numbers, every time.
    """
    spectra = torch.full((2, int(columns.node_ptr[-1]), frequencies), torch.nan)
    counts = node_counts(columns)
    large = (counts > DENSE_UP_TO).nonzero().flatten().tolist()
    device = torch.device(device)
    entries = ENTRIES_CPU if device.type == "cpu" else ENTRIES_GPU
    dense = list(blocks(columns, entries, largest=DENSE_UP_TO))

    def solve(block: Block) -> None:
        _solve_dense(columns, block, spectra, device)

    run_all(solve, dense, "Laplacian spectrum", device)
    run_all(
        lambda graph: _solve_sparse(columns, graph, spectra), large, "Laplacian spectrum, sparse"
    )
    # rounding can leave the zero eigenvalue a little below zero
    return spectra[0], spectra[1].clamp_min_(0.0)


def _solve_dense(
    columns: GraphColumns,
    block: Block,
    spectra: Float[Tensor, "2 nodes frequencies"],
    device: torch.device,
) -> None:
    place, source, target = edges_of(columns, block).to(device)
    size, graphs = block.size, len(block.graphs)
    laplacian = torch.zeros(graphs, size, size, dtype=torch.float64, device=device)
    # an entry that is written again stays -1: neither directions nor repeated edges matter
    laplacian[place, source, target] = -1.0
    laplacian[place, target, source] = -1.0
    diagonal = laplacian.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.copy_(-laplacian.sum(dim=2))
    values, vectors = torch.linalg.eigh(laplacian)
    kept = min(size, spectra.shape[2])
    rows = block.nodes.reshape(graphs, size)
    spectra[0][rows, :kept] = vectors[:, :, :kept].float().cpu()
    spectra[1][rows, :kept] = values[:, None, :kept].expand(-1, size, -1).float().cpu()


def _solve_sparse(
    columns: GraphColumns, graph: int, spectra: Float[Tensor, "2 nodes frequencies"]
) -> None:
    start, end = columns.node_ptr[graph : graph + 2].tolist()
    begin, stop = columns.edge_ptr[graph : graph + 2].tolist()
    kept = min(end - start, spectra.shape[2])
    values, vectors = sparse_spectrum(columns.edge_index[:, begin:stop], end - start, kept)
    spectra[0, start:end, :kept] = vectors.float()
    spectra[1, start:end, :kept] = values.float()


def sparse_spectrum(
    edge_index: Int[Tensor, "2 edges"], nodes: int, count: int
) -> tuple[Float[Tensor, " count"], Float[Tensor, "nodes count"]]:
    """The `count` smallest eigenvalues of one graph and their eigenvectors, in double precision."""
    edge_ptr = torch.tensor([0, edge_index.shape[1]])
    alone = GraphColumns(torch.tensor([0, nodes]), edge_ptr, edge_index)
    edges = simple_columns(alone).edge_index
    values, vectors = smallest_eigenpairs(edges.numpy(), nodes, count, DENSE_UP_TO)
    return torch.from_numpy(values), torch.from_numpy(vectors)

"""Columns that only some orders read: eigenvector centrality and communities, once per graph."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

DENSE_UP_TO = 64
DEGENERATE = 1e-9


def eigenvector_centrality(
    edge_index: Int[Tensor, "2 edges"], nodes: int
) -> Float[Tensor, " nodes"]:
    """Leading eigenvector of the undirected graph, of length 1 and without negative entries.

    Where several eigenvectors lead, as in a graph of equal parts, it is what they contain of the
    vector of ones, so that equal parts have equal scores.
    """
    rows, columns = _undirected(edge_index)
    if not rows.numel():
        # every vector leads where there are no edges, and the iteration below would pick any
        return torch.full((nodes,), max(nodes, 1) ** -0.5)
    centrality = None if nodes <= DENSE_UP_TO else _leading_sparse(rows, columns, nodes)
    if centrality is None:
        centrality = _leading_dense(rows, columns, nodes)
    return torch.nn.functional.normalize(centrality.abs(), dim=0).float()


def louvain_communities(
    edge_index: Int[Tensor, "2 edges"], nodes: int, seed: int = 0
) -> Int[Tensor, " nodes"]:
    """Community of each node of the undirected graph by Louvain's method, numbered from 0."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edge_index.T.tolist())
    community = torch.zeros(nodes, dtype=torch.int64)
    for number, members in enumerate(networkx.community.louvain_communities(graph, seed=seed)):
        community[list(members)] = number
    return community


def _leading_dense(
    rows: Int[Tensor, " pairs"], columns: Int[Tensor, " pairs"], nodes: int
) -> Float[Tensor, " nodes"]:
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency[rows, columns] = 1.0
    values, vectors = torch.linalg.eigh(adjacency)
    leading = vectors[:, values >= values.max() - DEGENERATE]
    return leading @ leading.sum(dim=0)


def _leading_sparse(
    rows: Int[Tensor, " pairs"], columns: Int[Tensor, " pairs"], nodes: int
) -> Float[Tensor, " nodes"] | None:
    """Lanczos' method; None if it does not converge, as where two parts lead almost together."""
    from scipy.sparse import coo_matrix, identity
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    ones = torch.ones(rows.shape[0], dtype=torch.float64).numpy()
    matrix = coo_matrix((ones, (rows.numpy(), columns.numpy())), shape=(nodes, nodes)).tocsr()
    # Started from ones, the iteration never leaves what leads together with them; the identity
    # changes no eigenvector.
    start = torch.ones(nodes).double().numpy()
    try:
        _, vectors = eigsh(matrix + identity(nodes), k=1, which="LA", v0=start)
    except ArpackNoConvergence:
        return None
    return torch.from_numpy(vectors[:, 0].copy())


def _undirected(edge_index: Int[Tensor, "2 edges"]) -> Int[Tensor, "2 pairs"]:
    """Every edge once in both directions."""
    return torch.unique(torch.cat([edge_index, edge_index.flip(0)], dim=1), dim=1)

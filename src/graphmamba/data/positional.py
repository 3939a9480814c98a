"""Columns computed once per graph: Laplacian spectrum, random walks, degrees around each node."""

from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.checks import check_least, check_types
from graphmamba.data.expander import expander_edges, expander_seeds
from graphmamba.data.graph_parts import lay_together, parts_of
from graphmamba.data.louvain import louvain_communities
from graphmamba.data.node_scores import eigenvector_centrality
from graphmamba.data.spectrum import DENSE_UP_TO, sparse_spectrum

DEGREE_PROFILE_COLUMNS = 5
WALK_COLUMNS = 512
"""Starts of a walk followed at once in one graph."""
RECIPE_VERSIONS = {
    "laplacian": 1,
    "random_walk": 1,
    "expander_index": 2,
    "centrality": 2,
    "cluster": 1,
    "degree_profile": 1,
}
"""To be raised when a column gets other values from the same graphs."""

COLUMN_OF = {
    "frequencies": "laplacian",
    "walks": "random_walk",
    "expander_degree": "expander_index",
    "has_centrality": "centrality",
    "has_clusters": "cluster",
    "degree_profile": "degree_profile",
}
"""What each field of `Precompute` asks for; `laplacian` is two columns, vectors and values."""

DegreeProfile = Literal["none", "biased", "unbiased"]
"""What the variance of the neighbours' degrees is divided by: n, or n - 1 as published."""


@dataclass(frozen=True)
class Precompute:
    """How much of each pre-computed column a model reads; 0 and `none` leave the column out."""

    frequencies: int = 0
    """Laplacian eigenvectors, from the smallest eigenvalue upwards."""
    walks: int = 0
    """Steps of the longest random walk."""
    expander_degree: int = 0
    """Random permutations that make up the expander graph."""
    has_centrality: bool = False
    """Whether nodes are sorted by eigenvector centrality."""
    has_clusters: bool = False
    """Whether nodes are sorted by community."""
    degree_profile: DegreeProfile = "none"
    """Degrees of each node and around it, where they stand in for features."""
    seed: int = 0
    """What the expander graphs are drawn from."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("frequencies", "walks", "expander_degree"):
            check_least(name, getattr(self, name), 0)

    def parts(self) -> dict[str, "Precompute"]:
        """What is asked for, column by column, so that each can be kept by itself."""
        nothing = Precompute()
        return {
            COLUMN_OF[field.name]: replace(
                nothing,
                **{field.name: getattr(self, field.name)},
                # nothing else is drawn
                seed=self.seed if field.name == "expander_degree" else 0,
            )
            for field in fields(self)
            if field.name in COLUMN_OF and getattr(self, field.name) != getattr(nothing, field.name)
        }

    def recipe(self) -> dict[str, dict[str, int | str]]:
        """What each column is made of, by the column's name: equal recipes give equal columns.

        Only columns that are asked for are in it, and of plain numbers and words, so that a cache
        can keep it as JSON.
        """
        return {
            name: {
                field.name: getattr(part, field.name)
                for field in fields(part)
                if getattr(part, field.name) != field.default
            }
            | {"version": RECIPE_VERSIONS[name]}
            for name, part in self.parts().items()
        }


def add_columns(
    graph: Data, precompute: Precompute, generator: torch.Generator | None = None
) -> Data:
    """Return the graph with the columns that `precompute` asks for.

    The graphs of a batch get them one by one, as if each had been given alone.

    Args:
        graph: A graph, or a batch of them.
        precompute: What a model reads; nothing else is computed.
        generator: What expander graphs are drawn from, one after another; None draws each by
            `precompute.seed` and its number in the batch, as those of a whole set are drawn.
    """
    parts = parts_of(graph)
    # without graphs, columns without rows are made
    parts = parts or [(graph.edge_index, 0)]
    seeds = expander_seeds(precompute.seed, len(parts))
    made = [
        _columns(edges, nodes, precompute, generator or torch.Generator().manual_seed(seed))
        for (edges, nodes), seed in zip(parts, seeds, strict=True)
    ]
    return lay_together(graph, parts, made)


def _columns(
    edge_index: Int[Tensor, "2 edges"],
    nodes: int,
    precompute: Precompute,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    if precompute.frequencies:
        vectors, values = laplacian_spectrum(edge_index, nodes, precompute.frequencies)
        made |= {"laplacian_vectors": vectors, "laplacian_values": values}
    if precompute.walks:
        made["random_walk"] = return_probabilities(edge_index, nodes, precompute.walks)
    if precompute.expander_degree:
        made["expander_index"] = expander_edges(nodes, precompute.expander_degree, generator)
    if precompute.has_centrality:
        made["centrality"] = eigenvector_centrality(edge_index, nodes)
    if precompute.has_clusters:
        made["cluster"] = louvain_communities(edge_index, nodes)
    if precompute.degree_profile != "none":
        is_unbiased = precompute.degree_profile == "unbiased"
        made["degree_profile"] = local_degree_profile(edge_index, nodes, is_unbiased)
    return made


def laplacian_spectrum(
    edge_index: Int[Tensor, "2 edges"], nodes: int, frequencies: int
) -> tuple[Float[Tensor, "nodes frequencies"], Float[Tensor, "nodes frequencies"]]:
    """Eigenvectors and eigenvalues of Deg - Adj, the smallest first, the zero one included.

    Directions, self-loops and repeated edges are dropped before. A graph with fewer nodes than
    `frequencies` has NaN in the missing columns. The eigenvalues are repeated for each node, so
    that both columns can be batched like any other.
    """
    kept = min(nodes, frequencies)
    if nodes > DENSE_UP_TO:
        values, vectors = _large_spectrum(edge_index, nodes, kept)
    else:
        source, target = edge_index
        adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
        adjacency[source, target] = 1.0
        adjacency = torch.maximum(adjacency, adjacency.T).fill_diagonal_(0.0)
        laplacian = torch.diag(adjacency.sum(dim=1)) - adjacency
        values, vectors = torch.linalg.eigh(laplacian)
    columns = torch.full((2, nodes, frequencies), torch.nan)
    columns[0, :, :kept] = vectors[:, :kept].float()
    # rounding can leave the zero eigenvalue a little below zero
    columns[1, :, :kept] = values[:kept].clamp_min(0.0).float()
    return columns[0], columns[1]


def _large_spectrum(
    edge_index: Int[Tensor, "2 edges"], nodes: int, kept: int
) -> tuple[Float[Tensor, " kept"], Float[Tensor, "nodes kept"]]:
    from threadpoolctl import threadpool_limits

    # many small products: several threads wait for one another longer than they work
    with threadpool_limits(1, user_api="blas"):
        return sparse_spectrum(edge_index, nodes, kept)


def return_probabilities(
    edge_index: Int[Tensor, "2 edges"], nodes: int, walks: int
) -> Float[Tensor, "nodes walks"]:
    """Probability that a random walk along the edges is back at its start after 1, 2, ... steps.

    A walk that reaches a node without outgoing edges ends there and never returns.
    """
    returns = torch.empty(nodes, walks)
    for starts in torch.arange(nodes).split(WALK_COLUMNS):
        returns[starts] = walk_back(edge_index, nodes, starts, torch.arange(len(starts)), walks)
    return returns


def walk_back(
    edge_index: Int[Tensor, "2 edges"],
    nodes: int,
    starts: Int[Tensor, " starts"],
    columns: Int[Tensor, " starts"],
    walks: int,
) -> Float[Tensor, "starts walks"]:
    """Probabilities to be back at some starts, by sparse products.

    Args:
        edge_index: Along which walks go.
        nodes: How many there are.
        starts: Nodes that walks begin at.
        columns: Where each of them is followed; those between which no walk leads may share one.
        walks: Steps of the longest walk.
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
    reached, returns = power.numpy(), torch.empty(len(starts), walks)
    for step in range(walks):
        reached = transition @ reached
        returns[:, step] = torch.from_numpy(reached[starts.numpy(), columns.numpy()]).float()
    return returns


def local_degree_profile(
    edge_index: Int[Tensor, "2 edges"], nodes: int, is_unbiased: bool = True
) -> Float[Tensor, "nodes 5"]:
    """Out-degree of each node, then minimum, maximum, mean, deviation of its targets' out-degrees.

    A node without outgoing edges has zeros. The published numbers divide the variance by n - 1
    (`is_unbiased`), newer releases of PyTorch Geometric by n.
    """
    source, target = edge_index
    degree = torch.zeros(nodes).index_add_(0, source, torch.ones(source.numel()))
    reached = degree[target]

    def reduce(values: Float[Tensor, " edges"], how: str) -> Float[Tensor, " nodes"]:
        return torch.zeros(nodes).scatter_reduce_(0, source, values, how, include_self=False)

    mean = reduce(reached, "mean")
    squares = reduce((reached - mean[source]).square(), "sum")
    divisor = (degree - 1 if is_unbiased else degree).clamp_min(1.0)
    deviation = (squares / divisor).sqrt()
    return torch.stack(
        [degree, reduce(reached, "amin"), reduce(reached, "amax"), mean, deviation], dim=1
    )
